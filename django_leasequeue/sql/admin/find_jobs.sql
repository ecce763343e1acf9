-- Purpose: jobs, live and finished, by number or by the client's job id, in every project.
-- Parameters: seq (null: none), key (null: none), size.
-- Index: leasequeue_job_pkey, leasequeue_job_key (leasequeue_keyed); of each found job one entry of each place (of a leased one the live claims of
--   its queue).
-- Pages: 80
-- Returns: seq, state (of the result + 10), project, queue, queue id, key, name, created_at, deliveries.
WITH j AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE seq = %(seq)s::bigint
    UNION
    SELECT * FROM (SELECT k.seq FROM leasequeue_keyed(ARRAY[%(key)s::text]) k LIMIT %(size)s::int) k
)
SELECT * FROM (
    SELECT l.seq, l.state::int AS state, q.project, q.name AS queue, q.id, l.key, l.name, l.created_at, l.deliveries
    FROM leasequeue_livejob l JOIN leasequeue_queue q ON q.id = l.queue_id WHERE l.seq = ANY (ARRAY(SELECT seq FROM j))
    UNION ALL
    SELECT r.seq, r.state::int + 10, q.project, q.name, q.id, k.key, k.name, k.created_at, r.deliveries
    FROM leasequeue_jobresult r CROSS JOIN LATERAL (SELECT * FROM leasequeue_job k WHERE k.seq = r.seq OFFSET 0) k
    JOIN leasequeue_queue q ON q.id = r.queue_id
    WHERE r.seq = ANY (ARRAY(SELECT seq FROM j))
) f ORDER BY f.seq DESC LIMIT %(size)s::int
