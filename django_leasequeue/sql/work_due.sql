-- Purpose: when a queue has something to give next without anybody saying so: a delayed job that is due, a lease that expires.
-- Parameters: queue (id), now.
-- Index: leasequeue_job_delayed from the floor on, leasequeue_claim_deadline from the floor on.
-- Returns: seconds from now, or null.
SELECT extract(epoch FROM LEAST(
    (SELECT j.available_at FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.state = 1
        AND j.available_at >= COALESCE((SELECT 'epoch'::timestamptz + f.value * interval '1 us'
            FROM leasequeue_queuefloor f WHERE f.queue_id = %(queue)s::bigint AND f.kind = 1 AND f.rank = 0), '-infinity')
        ORDER BY j.available_at LIMIT 1),
    (SELECT c.deadline FROM leasequeue_claim c WHERE c.queue_id = %(queue)s::bigint
        AND c.deadline >= COALESCE((SELECT 'epoch'::timestamptz + f.value * interval '1 us'
            FROM leasequeue_queuefloor f WHERE f.queue_id = %(queue)s::bigint AND f.kind = 2 AND f.rank = 0), '-infinity')
        ORDER BY c.deadline LIMIT 1)
    ) - COALESCE(%(now)s::timestamptz, clock_timestamp()))::float8
