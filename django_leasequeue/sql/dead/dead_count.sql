-- Purpose: count dead letters of queues (of one group, of a period), up to a cap, from the index only.
-- Parameters: queues (ids), fingerprint, since, until (null: any), cap.
-- Index: leasequeue_dead_died, or with a fingerprint leasequeue_dead_cause (compared and ordered as in dead_groups).
-- Pages: 20 + 0.4 a row
SELECT count(*) FROM (
    SELECT FROM (
        SELECT FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
            SELECT FROM leasequeue_deadletter d WHERE d.queue_id = q.id
                AND d.dead_at >= COALESCE(%(since)s::timestamptz, '-infinity')
                AND d.dead_at <= COALESCE(%(until)s::timestamptz, 'infinity')
            ORDER BY d.dead_at DESC LIMIT %(cap)s::int + 1) d
        WHERE %(fingerprint)s::text IS NULL) a
    UNION ALL
    SELECT FROM (
        SELECT FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
            SELECT FROM leasequeue_deadletter d WHERE d.queue_id = q.id
                AND (d.fingerprint, d.dead_at) >= (%(fingerprint)s::text, COALESCE(%(since)s::timestamptz, '-infinity'))
                AND (d.fingerprint, d.dead_at) <= (%(fingerprint)s::text, COALESCE(%(until)s::timestamptz, 'infinity'))
            ORDER BY d.fingerprint, d.dead_at LIMIT %(cap)s::int + 1) d
        WHERE %(fingerprint)s::text IS NOT NULL) b
    LIMIT %(cap)s::int + 1) x
