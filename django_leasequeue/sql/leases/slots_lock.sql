-- Purpose: take turns in claiming from a queue that has a limit of concurrency, until the end of the transaction.
-- Parameters: queue (id).
-- Pages: none.
-- Returns: one row.
SELECT pg_advisory_xact_lock(1280657737, %(queue)s::int)::text
