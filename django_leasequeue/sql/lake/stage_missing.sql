-- Purpose: the queues that staged jobs name and that do not exist.
-- Parameters: parts, project.
-- Index: leasequeue_lakestage_part, leasequeue_queue_name.
-- Pages: 410
SELECT DISTINCT s.queue FROM leasequeue_lakestage s
WHERE s.part = ANY (%(parts)s::uuid[]) AND NOT EXISTS (
    SELECT FROM leasequeue_queue q WHERE q.project = %(project)s::text AND q.name = s.queue)
ORDER BY s.queue
