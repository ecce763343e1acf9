-- Purpose: the queues that have an expired claim.
-- Parameters: now.
-- Index: leasequeue_claim_deadline from the floor on: one entry a queue.
-- Returns: queue id.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
)
SELECT f.queue_id FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
    SELECT FROM leasequeue_claim c
    WHERE c.queue_id = f.queue_id AND c.deadline >= 'epoch'::timestamptz + f.value * interval '1 us'
        AND c.deadline < (SELECT now FROM t) LIMIT 1) x
WHERE f.kind = 2
