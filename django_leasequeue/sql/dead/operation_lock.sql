-- Purpose: serialize starts of bulk operations, so that overlapping ones see each other.
-- Index: none; an advisory lock until the transaction ends.
SELECT pg_advisory_xact_lock({lock.operations}, 0)::text
