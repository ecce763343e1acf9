-- Purpose: numbers of deleted queues that still have jobs (a deletion was interrupted, or a session
--   enqueued at the same moment).
-- Parameters: size.
-- Index: leasequeue_queue_pkey; of each place the one that begins with the queue: one entry for each gap between two
--   queues.
-- Pages: 80
WITH gaps AS MATERIALIZED (
    SELECT ids.low, COALESCE(ids.high, 9223372036854775807) AS high FROM (
        SELECT 0::bigint AS low, (SELECT min(id) FROM leasequeue_queue) AS high
        UNION ALL
        SELECT q.id, lead(q.id) OVER (ORDER BY q.id) FROM leasequeue_queue q) ids
    WHERE ids.high IS NULL OR ids.high > ids.low + 1
)
SELECT DISTINCT p.queue_id FROM gaps CROSS JOIN LATERAL (
    (SELECT queue_id FROM leasequeue_ready WHERE queue_id > gaps.low AND queue_id < gaps.high ORDER BY queue_id LIMIT 1)
    UNION ALL
    (SELECT queue_id FROM leasequeue_delayed WHERE queue_id > gaps.low AND queue_id < gaps.high ORDER BY queue_id
        LIMIT 1)
    UNION ALL
    (SELECT queue_id FROM leasequeue_claim WHERE queue_id > gaps.low AND queue_id < gaps.high ORDER BY queue_id LIMIT 1)
    UNION ALL
    (SELECT queue_id FROM leasequeue_deadletter WHERE queue_id > gaps.low AND queue_id < gaps.high ORDER BY queue_id
        LIMIT 1)
    UNION ALL
    (SELECT queue_id FROM leasequeue_record WHERE queue_id > gaps.low AND queue_id < gaps.high ORDER BY queue_id
        LIMIT 1)
) p LIMIT %(size)s::int
