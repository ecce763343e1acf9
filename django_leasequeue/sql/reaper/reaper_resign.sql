-- Purpose: end the term, and notify those who wait for it.
-- Parameters: term, holder.
-- Index: leasequeue_reaperterm_pkey.
-- Pages: 20
UPDATE leasequeue_reaperterm SET holder = '', beat_at = clock_timestamp(), duties = '[]'
WHERE term = %(term)s::bigint AND holder = %(holder)s::text
RETURNING pg_notify({channel.reaper}, '')::text
