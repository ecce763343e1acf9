-- Purpose: the queues and logs that have an expired message, record or dead letter.
-- Parameters: since (a time up to which there was none left; null: look from the beginning), now.
-- Index: leasequeue_ready_expires, leasequeue_delayed_expires, leasequeue_record_expires, leasequeue_dead_expires: one
--   entry a queue each, or what is dead since that time.
-- Pages: 20 + 11 a row
-- Returns: the time of the look, then one row a queue: queue id, time.
WITH clock AS MATERIALIZED (
    SELECT {now()} AS now, COALESCE(%(since)s::timestamptz, '-infinity') AS since
)
SELECT NULL::bigint, now FROM clock
UNION ALL
SELECT q.id, clock.now FROM leasequeue_queue q CROSS JOIN clock CROSS JOIN LATERAL (
    SELECT FROM (
        (SELECT FROM leasequeue_ready r WHERE r.queue_id = q.id AND r.expires_at > clock.since
            AND r.expires_at <= clock.now
        ORDER BY r.expires_at LIMIT 1)
        UNION ALL
        (SELECT FROM leasequeue_delayed d WHERE d.queue_id = q.id AND d.expires_at > clock.since
            AND d.expires_at <= clock.now
        ORDER BY d.expires_at LIMIT 1)
        UNION ALL
        (SELECT FROM leasequeue_deadletter l WHERE l.queue_id = q.id AND l.expires_at > clock.since
            AND l.expires_at <= clock.now
        ORDER BY l.expires_at LIMIT 1)
        UNION ALL
        (SELECT FROM leasequeue_record o WHERE o.queue_id = q.id AND o.expires_at > clock.since
            AND o.expires_at <= clock.now
        ORDER BY o.expires_at LIMIT 1)) y LIMIT 1) x
