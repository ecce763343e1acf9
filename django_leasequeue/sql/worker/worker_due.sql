-- Purpose: how long an idle worker may sleep: until the next delayed job is due or the next lease expires.
-- Parameters: queues (ids), now.
-- Index: leasequeue_delayed_due and leasequeue_claim_deadline, each from its floor on: one entry a queue.
-- Pages: 190
-- Returns: seconds until the first delayed job, until the first claim's deadline; null if there is none, below zero if due.
WITH t AS MATERIALIZED (SELECT {now()} AS now), f AS MATERIALIZED (
    SELECT u.queue_id, k.kind, 'epoch'::timestamptz + interval '1 us' * {floor(u.queue_id, k.kind, 0)} AS since
    FROM unnest(%(queues)s::bigint[]) AS u(queue_id), (VALUES (1), (2)) AS k(kind)
)
SELECT extract(epoch FROM min(x.due) FILTER (WHERE f.kind = 1) - (SELECT now FROM t))::float8,
    extract(epoch FROM min(x.due) FILTER (WHERE f.kind = 2) - (SELECT now FROM t))::float8
FROM f CROSS JOIN LATERAL (
    (SELECT d.available_at AS due FROM leasequeue_delayed d
    WHERE f.kind = 1 AND d.queue_id = f.queue_id AND d.available_at >= f.since ORDER BY d.available_at LIMIT 1)
    UNION ALL
    (SELECT c.deadline FROM leasequeue_claim c
    WHERE f.kind = 2 AND c.queue_id = f.queue_id AND c.deadline >= f.since ORDER BY c.deadline LIMIT 1)
    UNION ALL
    (SELECT w.at FROM leasequeue_flowturn w WHERE f.kind = 1 AND w.queue_id = f.queue_id ORDER BY w.at LIMIT 1)
) x
