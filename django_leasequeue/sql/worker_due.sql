-- Purpose: how long an idle worker may sleep: until the next delayed job is due or the next lease expires.
-- Parameters: queues (ids), now.
-- Index: leasequeue_job_delayed and leasequeue_claim_deadline, each from its floor on: one entry a queue.
-- Returns: seconds until the first delayed job, until the first claim's deadline; null if there is none, below zero if due.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), f AS MATERIALIZED (
    SELECT f.queue_id, f.kind, 'epoch'::timestamptz + f.value * interval '1 us' AS since
    FROM leasequeue_queuefloor f WHERE f.queue_id = ANY (%(queues)s::bigint[]) AND f.kind IN (1, 2)
)
SELECT extract(epoch FROM min(x.due) FILTER (WHERE f.kind = 1) - (SELECT now FROM t))::float8,
    extract(epoch FROM min(x.due) FILTER (WHERE f.kind = 2) - (SELECT now FROM t))::float8
FROM f CROSS JOIN LATERAL (
    (SELECT j.available_at AS due FROM leasequeue_job j
    WHERE f.kind = 1 AND j.queue_id = f.queue_id AND j.state = 1 AND j.available_at >= f.since
    ORDER BY j.available_at LIMIT 1)
    UNION ALL
    (SELECT c.deadline FROM leasequeue_claim c
    WHERE f.kind = 2 AND c.queue_id = f.queue_id AND c.deadline >= f.since ORDER BY c.deadline LIMIT 1)
) x
