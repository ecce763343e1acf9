-- Purpose: when a queue has its next job without a notification: a delayed job that is due, a lease that expires.
-- Parameters: queue (id), now.
-- Index: leasequeue_delayed_due and leasequeue_claim_deadline, each from its floor on.
-- Pages: 40
WITH floors AS MATERIALIZED (
    SELECT k.kind, {since(%(queue)s::bigint, k.kind)} AS since
    FROM (VALUES ({floor.DELAYED}), ({floor.CLAIM})) AS k(kind)
)
SELECT extract(epoch FROM LEAST(
    (SELECT d.available_at FROM leasequeue_delayed d WHERE d.queue_id = %(queue)s::bigint
        AND d.available_at >= (SELECT since FROM floors WHERE kind = {floor.DELAYED}) ORDER BY d.available_at LIMIT 1),
    (SELECT c.deadline FROM leasequeue_claim c WHERE c.queue_id = %(queue)s::bigint
        AND c.deadline >= (SELECT since FROM floors WHERE kind = {floor.CLAIM}) ORDER BY c.deadline LIMIT 1),
    (SELECT f.at FROM leasequeue_flowturn f WHERE f.queue_id = %(queue)s::bigint ORDER BY f.at LIMIT 1)
    ) - {now()})::float8
