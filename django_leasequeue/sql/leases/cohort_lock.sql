-- Purpose: one deal of a queue's cohort at a time, until the transaction ends.
-- Parameters: queue (id).
-- Index: none, memory only.
-- Pages: 20
SELECT pg_advisory_xact_lock(1280657734, %(queue)s::int)::text
