-- Purpose: seconds until the next delayed job is due, and until the next lease expires, for idle workers.
-- Parameters: queues (ids), now.
-- Index: leasequeue_delayed_due and leasequeue_claim_deadline, each from its floor on: one entry a queue.
-- Pages: 190
-- Returns: seconds until the first delayed job, until the first claim's deadline; null if there is none, below zero if
--   due.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), floors AS MATERIALIZED (
    SELECT u.queue_id, k.kind, {since(u.queue_id, k.kind)} AS since
    FROM unnest(%(queues)s::bigint[]) AS u(queue_id), (VALUES ({floor.DELAYED}), ({floor.CLAIM})) AS k(kind)
)
SELECT extract(epoch FROM min(first.due) FILTER (WHERE floors.kind = {floor.DELAYED}) - (SELECT now
    FROM clock))::float8,
    extract(epoch FROM min(first.due) FILTER (WHERE floors.kind = {floor.CLAIM}) - (SELECT now FROM clock))::float8
FROM floors CROSS JOIN LATERAL (
    (SELECT d.available_at AS due FROM leasequeue_delayed d
    WHERE floors.kind = {floor.DELAYED} AND d.queue_id = floors.queue_id AND d.available_at >= floors.since
    ORDER BY d.available_at LIMIT 1)
    UNION ALL
    (SELECT c.deadline FROM leasequeue_claim c
    WHERE floors.kind = {floor.CLAIM} AND c.queue_id = floors.queue_id AND c.deadline >= floors.since
    ORDER BY c.deadline LIMIT 1)
) first
