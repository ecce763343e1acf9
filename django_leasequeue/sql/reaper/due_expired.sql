-- Purpose: the queues and logs that have a message, a record or a dead letter past its time.
-- Parameters: since (a time up to which there was none left; null: look from the beginning), now.
-- Index: leasequeue_ready_expires, leasequeue_delayed_expires, leasequeue_record_expires, leasequeue_dead_expires: one entry a
--   queue each, or what is dead since that time.
-- Pages: 20 + 11 a row
-- Returns: the time of the look, then one row a queue: queue id, time.
WITH t AS MATERIALIZED (
    SELECT {now()} AS now, COALESCE(%(since)s::timestamptz, '-infinity') AS since
)
SELECT NULL::bigint, t.now FROM t
UNION ALL
SELECT q.id, t.now FROM leasequeue_queue q CROSS JOIN t CROSS JOIN LATERAL (
    SELECT FROM (
        (SELECT FROM leasequeue_ready r WHERE r.queue_id = q.id AND r.expires_at > t.since AND r.expires_at <= t.now
        ORDER BY r.expires_at LIMIT 1)
        UNION ALL
        (SELECT FROM leasequeue_delayed d WHERE d.queue_id = q.id AND d.expires_at > t.since AND d.expires_at <= t.now
        ORDER BY d.expires_at LIMIT 1)
        UNION ALL
        (SELECT FROM leasequeue_deadletter l WHERE l.queue_id = q.id AND l.expires_at > t.since AND l.expires_at <= t.now
        ORDER BY l.expires_at LIMIT 1)
        UNION ALL
        (SELECT FROM leasequeue_record o WHERE o.queue_id = q.id AND o.expires_at > t.since AND o.expires_at <= t.now
        ORDER BY o.expires_at LIMIT 1)) y LIMIT 1) x
