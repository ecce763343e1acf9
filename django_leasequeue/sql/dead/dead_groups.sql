-- Purpose: groups of dead letters (a queue and a fingerprint) with the first and the last death of each, by a loose
--   index scan: what is read grows with the groups, not with the dead letters.
-- Parameters: queues (ids), fingerprint (null: any), since, until (null: any), size (groups looked at).
-- Index: leasequeue_dead_cause, three probes a group: each compares and orders by (fingerprint, dead_at), which no
--   other index can, so that no planner with old statistics takes leasequeue_dead_died and reads the whole queue.
-- Pages: 20 + 16 a row
-- Returns: groups without a dead letter in the range are left out.
WITH RECURSIVE span AS MATERIALIZED (
    SELECT COALESCE(%(since)s::timestamptz, '-infinity') AS since, COALESCE(%(until)s::timestamptz, 'infinity') AS until
), groups AS (
    SELECT k.queue_id, k.fingerprint FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
        SELECT d.queue_id, d.fingerprint FROM leasequeue_deadletter d
        WHERE d.queue_id = q.id AND d.fingerprint >= COALESCE(%(fingerprint)s::text, '')
        ORDER BY d.fingerprint, d.dead_at LIMIT 1) k
    UNION ALL
    SELECT n.queue_id, n.fingerprint FROM groups CROSS JOIN LATERAL (
        SELECT d.queue_id, d.fingerprint FROM leasequeue_deadletter d
        WHERE d.queue_id = groups.queue_id AND d.fingerprint > groups.fingerprint
            AND %(fingerprint)s::text IS NULL
        ORDER BY d.fingerprint, d.dead_at LIMIT 1) n
), shown AS MATERIALIZED (
    SELECT * FROM groups WHERE %(fingerprint)s::text IS NULL OR fingerprint = %(fingerprint)s::text LIMIT %(size)s::int
)
SELECT shown.queue_id, shown.fingerprint, f.dead_at AS first_at, l.dead_at AS last_at,
    (SELECT count(*) FROM shown) AS looked_at FROM shown CROSS JOIN span
CROSS JOIN LATERAL (
    SELECT d.fingerprint, d.dead_at FROM leasequeue_deadletter d WHERE d.queue_id = shown.queue_id
        AND (d.fingerprint, d.dead_at) >= (shown.fingerprint, span.since)
    ORDER BY d.fingerprint, d.dead_at LIMIT 1) f
CROSS JOIN LATERAL (
    SELECT d.dead_at FROM leasequeue_deadletter d WHERE d.queue_id = shown.queue_id
        AND (d.fingerprint, d.dead_at) <= (shown.fingerprint, span.until)
    ORDER BY d.fingerprint DESC, d.dead_at DESC LIMIT 1) l
WHERE f.fingerprint = shown.fingerprint AND f.dead_at <= span.until
