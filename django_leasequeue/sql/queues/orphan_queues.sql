-- Purpose: numbers of queues that are gone but still have jobs somewhere (a deletion was interrupted, or a session enqueued at
--   the same moment).
-- Parameters: size.
-- Index: leasequeue_queue_pkey; of each place the one that begins with the queue: one entry for each gap between two queues.
-- Pages: 80
-- Returns: queue id, at most one for each gap and place.
WITH g AS MATERIALIZED (
    SELECT x.low, COALESCE(x.high, 9223372036854775807) AS high FROM (
        SELECT 0::bigint AS low, (SELECT min(id) FROM leasequeue_queue) AS high
        UNION ALL
        SELECT q.id, lead(q.id) OVER (ORDER BY q.id) FROM leasequeue_queue q) x
    WHERE x.high IS NULL OR x.high > x.low + 1
)
SELECT DISTINCT p.queue_id FROM g CROSS JOIN LATERAL (
    (SELECT queue_id FROM leasequeue_ready WHERE queue_id > g.low AND queue_id < g.high ORDER BY queue_id LIMIT 1)
    UNION ALL
    (SELECT queue_id FROM leasequeue_delayed WHERE queue_id > g.low AND queue_id < g.high ORDER BY queue_id LIMIT 1)
    UNION ALL
    (SELECT queue_id FROM leasequeue_claim WHERE queue_id > g.low AND queue_id < g.high ORDER BY queue_id LIMIT 1)
    UNION ALL
    (SELECT queue_id FROM leasequeue_deadletter WHERE queue_id > g.low AND queue_id < g.high ORDER BY queue_id LIMIT 1)
    UNION ALL
    (SELECT queue_id FROM leasequeue_record WHERE queue_id > g.low AND queue_id < g.high ORDER BY queue_id LIMIT 1)
) p LIMIT %(size)s::int
