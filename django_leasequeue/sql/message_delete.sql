-- Purpose: delete messages that nobody holds.
-- Parameters: queue (id), seqs, now.
-- Index: leasequeue_job_pkey.
-- Returns: the seqs that went.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), d AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j, t
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.queue_id + 0 = %(queue)s
        AND (j.state IN (0, 1, 3) OR (j.state = 2 AND j.deadline < t.now))
    ORDER BY j.seq FOR UPDATE OF j
), gone AS (
    DELETE FROM leasequeue_job j USING t WHERE j.seq = ANY (ARRAY(SELECT seq FROM d))
    RETURNING j.seq, j.queue_id, j.name, j.deliveries, j.created_at, t.now
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, deliveries, enqueued_at, name, detail)
    SELECT pg_current_xact_id()::text::bigint, g.now, g.queue_id, g.seq, 10, g.deliveries, g.created_at, g.name,
        '{"reason": "deleted"}'::jsonb
    FROM gone g
)
SELECT seq FROM gone
