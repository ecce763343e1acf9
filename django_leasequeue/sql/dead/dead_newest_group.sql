-- Purpose: numbers of dead letters of some queues in one group, the newest death first; a window at a time.
-- Parameters: queues (ids), fingerprint, since, until (null: any), at and seq (of the last one seen; null: from the
--   start), each (dead letters of one queue that are read at most), size (dead letters in all).
-- Index: leasequeue_dead_cause; compared and ordered as in dead_groups, for planners with old statistics.
-- Pages: 20 + 0.8 a row
{dead_window(DESC, <, (d.fingerprint, d.dead_at) >= (%(fingerprint)s::text,
    COALESCE(%(since)s::timestamptz, '-infinity'))
    AND (d.fingerprint, d.dead_at) <= (%(fingerprint)s::text, LEAST(COALESCE(%(until)s::timestamptz, 'infinity'),
        COALESCE(%(at)s::timestamptz, 'infinity')))
    AND (d.fingerprint, d.dead_at, d.seq + 0)
    < (%(fingerprint)s::text, COALESCE(%(at)s::timestamptz, 'infinity'), COALESCE(%(seq)s::bigint, 9223372036854775807))
    ORDER BY d.fingerprint DESC, d.dead_at DESC, d.seq + 0 DESC)}
