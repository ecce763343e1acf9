-- Purpose: how many jobs of a queue are ready, counted.
-- Parameters: project, queue.
SELECT count(*) FROM leasequeue_ready r JOIN leasequeue_queue q ON q.id = r.queue_id
WHERE q.project = %(project)s AND q.name = %(queue)s
