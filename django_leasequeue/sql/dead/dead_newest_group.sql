-- Purpose: numbers of dead letters of some queues in one group, the newest death first; a window at a time.
-- Parameters: queues (ids), fingerprint, since, until (null: any), at and seq (of the last one seen; null: from the start), each
--   (dead letters of one queue that are read at most), size (dead letters in all).
-- Index: leasequeue_dead_cause; compared and ordered as in dead_groups, for planners with old statistics.
-- Pages: 20 + 0.8 a row
-- Returns: seq, dead_at, whether some queue was cut at ``each``: the window then ends where the first such queue ends.
WITH w AS MATERIALIZED (
    SELECT x.*, row_number() OVER (PARTITION BY x.queue_id ORDER BY x.dead_at DESC, x.seq DESC) AS n
    FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
        SELECT d.queue_id, d.dead_at, d.seq FROM leasequeue_deadletter d
        WHERE d.queue_id = q.id
            AND (d.fingerprint, d.dead_at) >= (%(fingerprint)s::text, COALESCE(%(since)s::timestamptz, '-infinity'))
            AND (d.fingerprint, d.dead_at) <= (%(fingerprint)s::text, LEAST(COALESCE(%(until)s::timestamptz, 'infinity'), COALESCE(%(at)s::timestamptz, 'infinity')))
            AND (d.fingerprint, d.dead_at, d.seq + 0)
                < (%(fingerprint)s::text, COALESCE(%(at)s::timestamptz, 'infinity'), COALESCE(%(seq)s::bigint, 9223372036854775807))
        ORDER BY d.fingerprint DESC, d.dead_at DESC, d.seq + 0 DESC LIMIT %(each)s::int) x
), horizon AS MATERIALIZED (
    SELECT dead_at, seq FROM w WHERE n = %(each)s::int ORDER BY dead_at DESC, seq DESC LIMIT 1
)
SELECT w.seq, w.dead_at, EXISTS (SELECT FROM horizon) FROM w
WHERE NOT EXISTS (SELECT FROM horizon h WHERE (w.dead_at, w.seq) < (h.dead_at, h.seq))
ORDER BY w.dead_at DESC, w.seq DESC LIMIT %(size)s::int
