-- Purpose: serialize deals to a queue's cohort, until the transaction ends.
-- Parameters: queue (id).
-- Pages: 20
SELECT pg_advisory_xact_lock({lock.cohorts}, %(queue)s::int)::text
