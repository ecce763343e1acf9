-- Purpose: lock jobs that have not started where they wait, so that until the transaction ends no claim and no
--   promotion takes them. Waits for a claim that is under way, and then leaves its jobs out.
-- Parameters: queue (id), seqs.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey.
-- Pages: 20 + 14 a row
WITH jobs AS MATERIALIZED (
    SELECT seq, rank, COALESCE(position, seq) AS position FROM leasequeue_job
    WHERE seq = ANY (%(seqs)s::bigint[]) AND queue_id + 0 = %(queue)s::bigint
), ready AS MATERIALIZED (
    SELECT p.seq FROM jobs CROSS JOIN LATERAL (
        SELECT b.seq FROM (VALUES ({FRESH}::smallint), ({AGAIN}::smallint)) AS v(lane) CROSS JOIN LATERAL (
            SELECT r.seq FROM leasequeue_ready r
            WHERE r.queue_id = %(queue)s::bigint AND r.rank = jobs.rank AND r.lane = v.lane
                AND r.position = jobs.position
                AND r.deliveries = 0 AND r.flags & {FAILED} = 0
            FOR UPDATE) b
        LIMIT 1) p
), delayed AS MATERIALIZED (
    SELECT seq FROM leasequeue_delayed
    WHERE seq = ANY (%(seqs)s::bigint[]) AND queue_id + 0 = %(queue)s::bigint AND deliveries = 0
        AND flags & {FAILED} = 0
    FOR UPDATE
)
SELECT seq FROM ready UNION ALL SELECT seq FROM delayed
