-- Purpose: the queues that the jobs of a workflow are in.
-- Parameters: workflow (id).
-- Index: leasequeue_member_workflow, leasequeue_queue_pkey.
-- Pages: 20 + 4 a row
SELECT DISTINCT q.name
FROM (SELECT DISTINCT m.queue_id FROM leasequeue_member m WHERE m.workflow = %(workflow)s::bigint) m
LEFT JOIN LATERAL (SELECT q.name FROM leasequeue_queue q WHERE q.id = m.queue_id OFFSET 0) q ON true
