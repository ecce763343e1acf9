-- Purpose: how many jobs a queue holds, counted.
-- Parameters: project, queue.
SELECT count(*) FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id
WHERE q.project = %(project)s AND q.name = %(queue)s
