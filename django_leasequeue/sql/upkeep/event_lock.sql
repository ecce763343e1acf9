-- Purpose: take the lock for changes of the lease log's partitions, until the end of the transaction, if it is free.
-- Parameters: lock_timeout (ms, for the statements that follow in this transaction).
SELECT pg_try_advisory_xact_lock({lock.partitions}, 0), set_config('lock_timeout', %(lock_timeout)s::int || 'ms', true)
