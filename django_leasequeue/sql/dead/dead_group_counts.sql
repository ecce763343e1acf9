-- Purpose: count the dead letters of groups, up to a cap for all groups together.
-- Parameters: queues (ids) and fingerprints, arrays of one length; cap.
-- Index: leasequeue_dead_size, which the condition on deliveries lets the planner use (index-only where vacuum has
--   been); ordered as in dead_groups, so that no other index serves.
-- Pages: 40 + 0.6 a row
{group_counts(d.fingerprint >= (%(fingerprints)s::text[])[counting.n + 1]
    AND d.fingerprint <= (%(fingerprints)s::text[])[counting.n + 1]
    AND d.deliveries < 2147483647 ORDER BY d.fingerprint)}
