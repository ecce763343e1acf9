-- Purpose: serialize imports of a jqueue file, until the end of the transaction.
-- Parameters: number (of the file's mark).
SELECT pg_try_advisory_xact_lock({lock.imports}, %(number)s::int)
