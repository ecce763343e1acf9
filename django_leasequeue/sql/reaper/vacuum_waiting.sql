-- Purpose: vacuum the tables through which jobs pass that wait for a slot or a time, but for those at which another
--   vacuum is.
-- Index: all of these tables'.
-- Pages: whole tables: what has changed in them, and their indexes.
VACUUM (SKIP_LOCKED, TRUNCATE FALSE) leasequeue_ready, leasequeue_delayed, leasequeue_member, leasequeue_flowturn
