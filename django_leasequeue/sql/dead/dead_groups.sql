-- Purpose: groups of dead letters (a queue and a fingerprint) with the first and the last death of each, by a loose index
--   scan: what is read grows with the groups, not with the dead letters.
-- Parameters: queues (ids), fingerprint (null: any), since, until (null: any), size (groups looked at).
-- Index: leasequeue_dead_cause, three probes a group: each compares and orders by (fingerprint, dead_at), which no other index
--   can, so that no planner with old statistics takes leasequeue_dead_died and reads the whole queue.
-- Pages: 20 + 16 a row
-- Returns: queue id, fingerprint, first dead_at, last dead_at; groups without a dead letter in the range are left out. Last the
--   number of groups looked at.
WITH RECURSIVE t AS MATERIALIZED (
    SELECT COALESCE(%(since)s::timestamptz, '-infinity') AS since, COALESCE(%(until)s::timestamptz, 'infinity') AS until
), g AS (
    SELECT k.queue_id, k.fingerprint FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
        SELECT d.queue_id, d.fingerprint FROM leasequeue_deadletter d
        WHERE d.queue_id = q.id AND d.fingerprint >= COALESCE(%(fingerprint)s::text, '')
        ORDER BY d.fingerprint, d.dead_at LIMIT 1) k
    UNION ALL
    SELECT n.queue_id, n.fingerprint FROM g CROSS JOIN LATERAL (
        SELECT d.queue_id, d.fingerprint FROM leasequeue_deadletter d
        WHERE d.queue_id = g.queue_id AND d.fingerprint > g.fingerprint
            AND %(fingerprint)s::text IS NULL
        ORDER BY d.fingerprint, d.dead_at LIMIT 1) n
), s AS MATERIALIZED (
    SELECT * FROM g WHERE %(fingerprint)s::text IS NULL OR g.fingerprint = %(fingerprint)s::text LIMIT %(size)s::int
)
SELECT s.queue_id, s.fingerprint, f.dead_at, l.dead_at, (SELECT count(*) FROM s) FROM s CROSS JOIN t
CROSS JOIN LATERAL (
    SELECT d.fingerprint, d.dead_at FROM leasequeue_deadletter d WHERE d.queue_id = s.queue_id
        AND (d.fingerprint, d.dead_at) >= (s.fingerprint, t.since)
    ORDER BY d.fingerprint, d.dead_at LIMIT 1) f
CROSS JOIN LATERAL (
    SELECT d.dead_at FROM leasequeue_deadletter d WHERE d.queue_id = s.queue_id
        AND (d.fingerprint, d.dead_at) <= (s.fingerprint, t.until)
    ORDER BY d.fingerprint DESC, d.dead_at DESC LIMIT 1) l
WHERE f.fingerprint = s.fingerprint AND f.dead_at <= t.until
