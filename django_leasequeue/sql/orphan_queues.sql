-- Purpose: numbers of queues that are gone but still have ready, delayed, dead or record rows (a deletion was interrupted,
--   or somebody enqueued at the same moment).
-- Parameters: size.
-- Index: leasequeue_queue_pkey; leasequeue_job_ready, leasequeue_job_delayed, leasequeue_job_dead, leasequeue_job_record:
--   one entry for each gap between two queues.
-- Returns: queue id, at most one for each gap and index.
WITH g AS MATERIALIZED (
    SELECT x.low, x.high FROM (
        SELECT 0::bigint AS low, (SELECT min(id) FROM leasequeue_queue) AS high
        UNION ALL
        SELECT q.id, lead(q.id) OVER (ORDER BY q.id) FROM leasequeue_queue q) x
    WHERE x.high IS NULL OR x.high > x.low + 1
)
SELECT DISTINCT j.queue_id FROM g CROSS JOIN LATERAL (
    (SELECT j.queue_id FROM leasequeue_job j
    WHERE j.queue_id > g.low AND j.queue_id < COALESCE(g.high, 9223372036854775807) AND j.state = 0 LIMIT 1)
    UNION ALL
    (SELECT j.queue_id FROM leasequeue_job j
    WHERE j.queue_id > g.low AND j.queue_id < COALESCE(g.high, 9223372036854775807) AND j.state = 1 LIMIT 1)
    UNION ALL
    (SELECT j.queue_id FROM leasequeue_job j
    WHERE j.queue_id > g.low AND j.queue_id < COALESCE(g.high, 9223372036854775807) AND j.dead_at IS NOT NULL LIMIT 1)
    UNION ALL
    (SELECT j.queue_id FROM leasequeue_job j
    WHERE j.queue_id > g.low AND j.queue_id < COALESCE(g.high, 9223372036854775807) AND j.state = 4 LIMIT 1)
) j LIMIT %(size)s::int
