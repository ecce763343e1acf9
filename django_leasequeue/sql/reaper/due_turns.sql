-- Purpose: the queues that have events of limits and workflows. Events with a time are those of rates:
--   claimers take them.
-- Index: leasequeue_flowturn_due: one entry a queue.
-- Pages: 20 + 3 a row
SELECT q.id FROM leasequeue_queue q CROSS JOIN LATERAL (
    SELECT FROM leasequeue_flowturn f
    WHERE f.queue_id = q.id AND f.at = 'epoch' ORDER BY f.at LIMIT 1) x
WHERE q.type = 'queue'
