-- Purpose: nodes that were there for a failure that did not come are none of their workflow any more, unless an earlier
--   failure has set them free; the caller takes their jobs out. The caller holds the workflow (flow_lock.sql).
-- Parameters: seqs.
-- Index: leasequeue_delayed_pkey, leasequeue_member_pkey, leasequeue_workflow_pkey.
-- Pages: 20 + 16 a row
WITH needless AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT d.seq FROM leasequeue_delayed d
        WHERE d.seq = ANY (%(seqs)s::bigint[]) AND (d.available_at >= {HELD}) IS TRUE))
    RETURNING seq, queue_id, workflow
), counts AS MATERIALIZED (
    SELECT workflow AS id, count(*) AS n FROM needless GROUP BY workflow
), shrunk AS (
    UPDATE leasequeue_workflow w SET total = w.total - counts.n FROM counts
    WHERE w.id = counts.id AND w.id = ANY (ARRAY(SELECT id FROM counts))
)
SELECT queue_id, array_agg(seq ORDER BY seq) FROM needless GROUP BY queue_id
