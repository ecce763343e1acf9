-- Purpose: the expired messages, records and dead letters of queues (see remove.sql); a live lease protects,
--   and what another transaction has taken or is removing is left to it.
-- Parameters: queues (ids), size (rows per queue and place), now.
-- Index: leasequeue_ready_expires, leasequeue_delayed_expires, leasequeue_dead_expires, leasequeue_record_expires.
-- Pages: 20 + 4 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now)
SELECT q.id, x.dead, array_agg(x.seq)
FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
    SELECT * FROM (SELECT r.seq, false AS dead FROM leasequeue_ready r
        WHERE r.queue_id = q.id AND r.expires_at IS NOT NULL
        AND r.expires_at <= (SELECT now FROM clock) ORDER BY r.expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) r
    UNION ALL
    SELECT * FROM (SELECT d.seq, false FROM leasequeue_delayed d WHERE d.queue_id = q.id AND d.expires_at IS NOT NULL
        AND d.expires_at <= (SELECT now FROM clock) ORDER BY d.expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) d
    UNION ALL
    SELECT * FROM (SELECT o.seq, false FROM leasequeue_record o WHERE o.queue_id = q.id AND o.expires_at IS NOT NULL
        AND o.expires_at <= (SELECT now FROM clock) ORDER BY o.expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) o
    UNION ALL
    SELECT * FROM (SELECT x.seq, true FROM leasequeue_deadletter x
        WHERE x.queue_id = q.id AND x.expires_at IS NOT NULL AND x.in_place
        AND x.expires_at <= (SELECT now FROM clock) ORDER BY x.expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) x
) x GROUP BY q.id, x.dead
