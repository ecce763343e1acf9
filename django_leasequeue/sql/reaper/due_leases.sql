-- Purpose: the queues that have an expired claim.
-- Parameters: now.
-- Index: leasequeue_floor_place; leasequeue_claim_deadline from the floor on: one entry a queue.
-- Pages: 20 + 7 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now)
SELECT q.id FROM leasequeue_queue q CROSS JOIN LATERAL (
    SELECT FROM leasequeue_claim c
    WHERE c.queue_id = q.id AND c.deadline < (SELECT now FROM clock)
        AND c.deadline >= {since(q.id, {floor.CLAIM})} ORDER BY c.deadline LIMIT 1) x
WHERE q.type = 'queue'
