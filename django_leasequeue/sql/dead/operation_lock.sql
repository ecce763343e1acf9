-- Purpose: let one start of a bulk operation go on at a time, so that two that overlap see each other.
-- Parameters: now (unused).
-- Index: none; an advisory lock until the transaction ends.
-- Pages: none: a lock.
-- Returns: nothing of use.
SELECT pg_advisory_xact_lock(1280657732, 0)::text
