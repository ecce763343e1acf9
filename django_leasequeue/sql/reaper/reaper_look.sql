-- Purpose: the leader of the reapers of this database, and the state of its duties.
-- Index: none (a table of one row).
-- Pages: 5
-- Returns: term, beat, holder ('' if the leader has resigned), where the holder's connection comes from, when its term
--   began, seconds since its last beat (by the server's clock), its duties (JSON text); no row if no reaper has ever
--   led.
SELECT term, beat, holder, address, began_at, extract(epoch FROM clock_timestamp() - beat_at)::float8, duties::text
FROM leasequeue_reaperterm
