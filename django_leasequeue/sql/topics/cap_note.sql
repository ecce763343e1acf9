-- Purpose: add what was just written to the figures of a topic with a cap. The writer holds cap_lock.
-- Parameters: queue (id), seqs (the new records).
-- Index: leasequeue_queue_pkey, leasequeue_topicstate_pkey, leasequeue_job_pkey.
-- Pages: 20 + 0.2 a row
-- Returns: name, type, cap_records, cap_bytes, discard; records and bytes, at most so many are live (null: count them).
WITH n AS MATERIALIZED (
    SELECT count(*) AS records, COALESCE(sum({bytes(j)}), 0)::bigint AS bytes
    FROM leasequeue_job j WHERE j.seq = ANY (%(seqs)s::bigint[])
), s AS (
    INSERT INTO leasequeue_topicstate AS s (queue_id) SELECT %(queue)s::bigint FROM n
    ON CONFLICT (queue_id) DO UPDATE SET
        records = s.records + (SELECT records FROM n), bytes = s.bytes + (SELECT bytes FROM n)
    RETURNING s.records, s.bytes
)
SELECT q.name, q.type, q.cap_records, q.cap_bytes, q.discard, s.records, s.bytes
FROM s, leasequeue_queue q WHERE q.id = %(queue)s::bigint
