-- Purpose: groups of dead letters (a queue and a fingerprint) with the first and the last death of each, by a loose index
--   scan: what is read grows with the groups, not with the letters.
-- Parameters: queues (ids), fingerprint (null: any), since, until (null: any), size (groups looked at).
-- Index: leasequeue_job_dead, three probes a group: each compares and orders by (fingerprint, dead_at), which no other index
--   can, so that no planner with old statistics takes leasequeue_job_died and reads the whole queue.
-- Returns: queue id, fingerprint, first dead_at, last dead_at; groups without a letter in the range are left out. Last the
--   number of groups looked at.
WITH RECURSIVE t AS MATERIALIZED (
    SELECT COALESCE(%(since)s::timestamptz, '-infinity') AS since, COALESCE(%(until)s::timestamptz, 'infinity') AS until
), g AS (
    SELECT k.queue_id, k.fingerprint FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
        SELECT j.queue_id, j.fingerprint FROM leasequeue_job j
        WHERE j.queue_id = q.id AND j.dead_at IS NOT NULL AND j.fingerprint >= COALESCE(%(fingerprint)s::text, '')
        ORDER BY j.fingerprint, j.dead_at LIMIT 1) k
    UNION ALL
    SELECT n.queue_id, n.fingerprint FROM g CROSS JOIN LATERAL (
        SELECT j.queue_id, j.fingerprint FROM leasequeue_job j
        WHERE j.queue_id = g.queue_id AND j.dead_at IS NOT NULL AND j.fingerprint > g.fingerprint
            AND %(fingerprint)s::text IS NULL
        ORDER BY j.fingerprint, j.dead_at LIMIT 1) n
), s AS MATERIALIZED (
    SELECT * FROM g WHERE %(fingerprint)s::text IS NULL OR g.fingerprint = %(fingerprint)s::text LIMIT %(size)s::int
)
SELECT s.queue_id, s.fingerprint, f.dead_at, l.dead_at, (SELECT count(*) FROM s) FROM s CROSS JOIN t
CROSS JOIN LATERAL (
    SELECT j.fingerprint, j.dead_at FROM leasequeue_job j WHERE j.queue_id = s.queue_id AND j.dead_at IS NOT NULL
        AND (j.fingerprint, j.dead_at) >= (s.fingerprint, t.since)
    ORDER BY j.fingerprint, j.dead_at LIMIT 1) f
CROSS JOIN LATERAL (
    SELECT j.dead_at FROM leasequeue_job j WHERE j.queue_id = s.queue_id AND j.dead_at IS NOT NULL
        AND (j.fingerprint, j.dead_at) <= (s.fingerprint, t.until)
    ORDER BY j.fingerprint DESC, j.dead_at DESC LIMIT 1) l
WHERE f.fingerprint = s.fingerprint AND f.dead_at <= t.until
