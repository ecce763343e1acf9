-- Purpose: the numbers of jobs by their keys, in one queue.
-- Parameters: project, queue, keys.
-- Index: leasequeue_queue_name, leasequeue_job_key (leasequeue_keyed).
-- Pages: 20 + 1.2 a row
-- Returns: queue id (always one row at least, if the queue is there), seq.
SELECT q.id, j.seq
FROM leasequeue_queue q LEFT JOIN leasequeue_job j
    ON j.seq = ANY (ARRAY(SELECT k.seq FROM leasequeue_keyed(%(keys)s::text[]) k)) AND j.queue_id = q.id
WHERE q.project = %(project)s AND q.name = %(queue)s
