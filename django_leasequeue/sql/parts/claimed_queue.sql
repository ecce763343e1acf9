-- claimed_queue(): the queue that jobs are claimed of, unless it is paused; max: deliveries from which a claim moves a
-- job aside.
SELECT q.id, q.name, q.max_deliveries, COALESCE(%(lease_ms)s::bigint, q.lease_ms) AS ttl, {now()} AS now,
    CASE WHEN q.exhaust_at = 'claim' THEN CASE WHEN q.dead_letter IS NULL THEN 0 ELSE q.max_deliveries END END AS max,
    {lazily(NOT q.leases_durable)}
FROM leasequeue_queue q WHERE q.id = %(queue)s::bigint AND q.type = 'queue' AND q.paused_at IS NULL
    AND (q.concurrency = 0 OR %(slots)s::bool)
