-- Purpose: serialize claims of a queue with a limit of concurrency, until the end of the transaction.
-- Parameters: queue (id).
SELECT pg_advisory_xact_lock({lock.slots}, %(queue)s::int)::text
