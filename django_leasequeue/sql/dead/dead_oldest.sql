-- Purpose: numbers of dead letters of some queues, the oldest death first; a window at a time.
-- Parameters: queues (ids), since, until (null: any), at and seq (of the last one seen; null: from the start), each
--   (dead letters of one queue that are read at most), size (dead letters in all).
-- Index: leasequeue_dead_died.
-- Pages: 20 + 0.2 a row
{dead_window(ASC, >, d.dead_at >= GREATEST(COALESCE(%(since)s::timestamptz, '-infinity'),
    COALESCE(%(at)s::timestamptz, '-infinity'))
    AND d.dead_at <= COALESCE(%(until)s::timestamptz, 'infinity')
    AND (d.dead_at, d.seq + 0) > (COALESCE(%(at)s::timestamptz, '-infinity'), COALESCE(%(seq)s::bigint, 0))
    ORDER BY d.dead_at, d.seq + 0)}
