-- Purpose: the epoch of this database: the upper bits of what numbers transactions in the lease log. A database that
--   was restored by copying its rows counts transactions anew, and begins the next epoch (engine/epoch.py replaces this
--   function). Plans hold its value, and are made anew when it is replaced. (Not IMMUTABLE: such a value would stay in
--   plans.)
CREATE FUNCTION leasequeue_epoch() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE RETURN 0::bigint;
