-- Purpose: lock jobs that have not started where they wait, so that until the transaction ends no claim and no promotion takes
--   them. Waits for a claim that is under way, and then leaves its jobs out.
-- Parameters: queue (id), seqs.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey.
-- Pages: 20 + 14 a row
-- Returns: seqs of those that are locked now.
WITH j AS MATERIALIZED (
    SELECT seq, rank, COALESCE(position, seq) AS position FROM leasequeue_job
    WHERE seq = ANY (%(seqs)s::bigint[]) AND queue_id + 0 = %(queue)s::bigint
), r AS MATERIALIZED (
    SELECT p.seq FROM j CROSS JOIN LATERAL (
        SELECT b.seq FROM (VALUES (2::smallint), (1::smallint)) AS v(lane) CROSS JOIN LATERAL (
            SELECT r.seq FROM leasequeue_ready r
            WHERE r.queue_id = %(queue)s::bigint AND r.rank = j.rank AND r.lane = v.lane AND r.position = j.position
                AND r.deliveries = 0 AND r.flags & 8 = 0
            FOR UPDATE) b
        LIMIT 1) p
), d AS MATERIALIZED (
    SELECT seq FROM leasequeue_delayed
    WHERE seq = ANY (%(seqs)s::bigint[]) AND queue_id + 0 = %(queue)s::bigint AND deliveries = 0 AND flags & 8 = 0
    FOR UPDATE
)
SELECT seq FROM r UNION ALL SELECT seq FROM d
