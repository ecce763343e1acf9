-- Purpose: ready jobs of a queue in claim order, a page at a time; messages past their TTL are left out, as in a claim.
-- Parameters: project, queue, rank and position (of the last job seen; null: from the start), size, now.
-- Index: leasequeue_job_ready from the floor on.
-- Returns: seq, rank, position.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), f AS MATERIALIZED (
    SELECT q.id, f.rank, CASE WHEN f.rank = %(rank)s::int THEN GREATEST(f.value, %(position)s::bigint + 1)
        ELSE f.value END AS low
    FROM leasequeue_queue q JOIN leasequeue_queuefloor f ON f.queue_id = q.id AND f.kind = 0
    WHERE q.project = %(project)s AND q.name = %(queue)s AND (%(rank)s::int IS NULL OR f.rank >= %(rank)s::int)
    ORDER BY f.rank
)
SELECT x.seq, x.rank, x.position FROM (
    SELECT j.seq, f.rank, j.position FROM f CROSS JOIN LATERAL (
        SELECT j.seq, j.position FROM leasequeue_job j
        WHERE j.queue_id = f.id AND j.rank = f.rank AND j.state = 0 AND j.position >= f.low
            AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM t))
        ORDER BY j.position LIMIT %(size)s::int) j
    LIMIT %(size)s::int) x
ORDER BY x.rank, x.position
