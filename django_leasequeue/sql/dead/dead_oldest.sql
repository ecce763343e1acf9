-- Purpose: numbers of dead letters of some queues, the oldest death first; a window at a time.
-- Parameters: queues (ids), since, until (null: any), at and seq (of the last one seen; null: from the start), each
--   (dead letters of one queue that are read at most), size (dead letters in all).
-- Index: leasequeue_dead_died.
-- Pages: 20 + 0.2 a row
-- Returns: seq, dead_at, whether some queue was cut at ``each``: the window then ends where the first such queue ends.
WITH w AS MATERIALIZED (
    SELECT x.*, row_number() OVER (PARTITION BY x.queue_id ORDER BY x.dead_at, x.seq) AS n
    FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
        SELECT d.queue_id, d.dead_at, d.seq FROM leasequeue_deadletter d
        WHERE d.queue_id = q.id
            AND d.dead_at >= GREATEST(COALESCE(%(since)s::timestamptz, '-infinity'), COALESCE(%(at)s::timestamptz, '-infinity'))
            AND d.dead_at <= COALESCE(%(until)s::timestamptz, 'infinity')
            AND (d.dead_at, d.seq + 0) > (COALESCE(%(at)s::timestamptz, '-infinity'), COALESCE(%(seq)s::bigint, 0))
        ORDER BY d.dead_at, d.seq + 0 LIMIT %(each)s::int) x
), horizon AS MATERIALIZED (
    SELECT dead_at, seq FROM w WHERE n = %(each)s::int ORDER BY dead_at, seq LIMIT 1
)
SELECT w.seq, w.dead_at, EXISTS (SELECT FROM horizon) FROM w
WHERE NOT EXISTS (SELECT FROM horizon h WHERE (w.dead_at, w.seq) > (h.dead_at, h.seq))
ORDER BY w.dead_at, w.seq LIMIT %(size)s::int
