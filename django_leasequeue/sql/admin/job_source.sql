-- Purpose: the call of a live or finished job, to enqueue it again.
-- Parameters: seq.
-- Index: leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 20
SELECT j.seq, q.project, q.name AS queue, q.type,
    CASE q.priority_order WHEN 'asc' THEN j.rank WHEN 'desc' THEN -j.rank END::int AS priority,
    j.key IS NOT NULL AS keyed, j.name, j.tag, j.data::text AS data_json, j.meta::text AS meta_json, j.body,
    j.max_deliveries, j.result_ttl_ms
FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id WHERE j.seq = %(seq)s::bigint
