-- Purpose: one writer at a time in a topic with a cap, until the transaction ends. Topics without one are never locked.
-- Parameters: queue (id).
-- Pages: 20
SELECT pg_advisory_xact_lock({lock.caps}, %(queue)s::int)::text
