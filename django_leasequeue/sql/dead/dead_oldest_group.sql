-- Purpose: numbers of dead letters of some queues in one group, the oldest death first; a window at a time.
-- Parameters: queues (ids), fingerprint, since, until (null: any), at and seq (of the last one seen; null: from the
--   start), each (dead letters of one queue that are read at most), size (dead letters in all).
-- Index: leasequeue_dead_cause; compared and ordered as in dead_groups, for planners with old statistics.
-- Pages: 20 + 0.8 a row
{dead_window(ASC, >, (d.fingerprint, d.dead_at) >= (%(fingerprint)s::text,
    GREATEST(COALESCE(%(since)s::timestamptz, '-infinity'), COALESCE(%(at)s::timestamptz, '-infinity')))
    AND (d.fingerprint, d.dead_at) <= (%(fingerprint)s::text, COALESCE(%(until)s::timestamptz, 'infinity'))
    AND (d.fingerprint, d.dead_at, d.seq + 0) > (%(fingerprint)s::text, COALESCE(%(at)s::timestamptz, '-infinity'),
        COALESCE(%(seq)s::bigint, 0))
    ORDER BY d.fingerprint, d.dead_at, d.seq + 0)}
