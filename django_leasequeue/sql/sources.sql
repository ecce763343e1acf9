-- Purpose: the queues that dead letters came from.
-- Parameters: project, queue (name of the topic they are in), seqs.
-- Index: leasequeue_job_pkey.
-- Returns: seq, name of the source queue (null if that queue is gone).
SELECT j.seq, CASE WHEN j.source_queue IS NULL THEN q.name ELSE s.name END
FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id
LEFT JOIN leasequeue_queue s ON s.id = j.source_queue
WHERE j.seq = ANY (%(seqs)s::bigint[]) AND q.project = %(project)s AND q.name = %(queue)s AND j.dead_at IS NOT NULL
