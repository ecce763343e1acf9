-- Purpose: say that the leader lives, and how its duties do. Does not wait for the disk: a beat that is lost is one of
--   many.
-- Parameters: term, holder, duties (JSON text).
-- Index: leasequeue_reaperterm_pkey.
-- Pages: 20
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS set)
UPDATE leasequeue_reaperterm SET beat = beat + 1, beat_at = clock_timestamp(), duties = %(duties)s::jsonb FROM quick
WHERE term = %(term)s::bigint AND holder = %(holder)s::text AND quick.set IS NOT NULL
RETURNING beat
