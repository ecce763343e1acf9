-- Purpose: jobs and remembered results by number or by the client's job id, in every project.
-- Parameters: seq (null: none), key (null: none), size.
-- Index: leasequeue_job_pkey, leasequeue_job_key, leasequeue_jobresult_pkey, leasequeue_result_key.
-- Returns: seq, state (of the result + 10), project, queue, queue id, key, name, created_at, deliveries.
SELECT * FROM (
    (SELECT j.seq, j.state::int, q.project, q.name AS queue, q.id, j.key, j.name, j.created_at, j.deliveries
    FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id WHERE j.seq = %(seq)s::bigint)
    UNION
    (SELECT j.seq, j.state::int, q.project, q.name, q.id, j.key, j.name, j.created_at, j.deliveries
    FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id WHERE j.key = %(key)s::text LIMIT %(size)s::int)
    UNION
    (SELECT r.seq, r.state::int + 10, q.project, q.name, q.id, r.key, r.name, r.created_at, r.deliveries
    FROM leasequeue_jobresult r JOIN leasequeue_queue q ON q.id = r.queue_id WHERE r.seq = %(seq)s::bigint)
    UNION
    (SELECT r.seq, r.state::int + 10, q.project, q.name, q.id, r.key, r.name, r.created_at, r.deliveries
    FROM leasequeue_jobresult r JOIN leasequeue_queue q ON q.id = r.queue_id WHERE r.key = %(key)s::text
    LIMIT %(size)s::int)
) f ORDER BY f.seq DESC LIMIT %(size)s::int
