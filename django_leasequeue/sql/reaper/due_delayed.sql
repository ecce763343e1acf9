-- Purpose: the queues that have a due delayed job.
-- Parameters: now.
-- Index: leasequeue_floor_place; leasequeue_delayed_due from the floor on: one entry a queue. (The order keeps a
--   planner who expects many from reading the table from its beginning.)
-- Pages: 20 + 7 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now)
SELECT q.id FROM leasequeue_queue q CROSS JOIN LATERAL (
    SELECT FROM leasequeue_delayed d
    WHERE d.queue_id = q.id AND d.available_at <= (SELECT now FROM clock)
        AND d.available_at >= {since(q.id, {floor.DELAYED})}
    ORDER BY d.available_at LIMIT 1) x
WHERE q.type = 'queue'
