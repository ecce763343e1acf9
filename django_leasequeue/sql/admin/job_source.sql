-- Purpose: what a job was enqueued with, live or finished, to enqueue it once more.
-- Parameters: seq.
-- Index: leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 20
-- Returns: seq, project, queue, type, priority (null: the queue has none), whether it has a key, name, tag, data, meta (json texts),
--   body, max_deliveries, result_ttl_ms.
SELECT j.seq, q.project, q.name, q.type, CASE q.priority_order WHEN 'asc' THEN j.rank WHEN 'desc' THEN -j.rank END::int,
    j.key IS NOT NULL, j.name, j.tag, j.data::text, j.meta::text, j.body, j.max_deliveries, j.result_ttl_ms
FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id WHERE j.seq = %(seq)s::bigint
