-- Purpose: count the dead letters of groups in a period; of all groups together no more than a cap are counted.
-- Parameters: queues (ids) and fingerprints, arrays of one length; since, until (null: any), cap.
-- Index: leasequeue_dead_cause (index-only where vacuum has been); compared and ordered as in dead_groups.
-- Pages: 20 + 0.6 a row
{group_counts((d.fingerprint, d.dead_at)
    >= ((%(fingerprints)s::text[])[counting.n + 1], COALESCE(%(since)s::timestamptz, '-infinity'))
    AND (d.fingerprint, d.dead_at)
    <= ((%(fingerprints)s::text[])[counting.n + 1], COALESCE(%(until)s::timestamptz, 'infinity'))
    ORDER BY d.fingerprint, d.dead_at)}
