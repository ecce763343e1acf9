-- Purpose: an advisory lock until the end of the transaction, if it is free.
-- Parameters: space, number; lock_timeout (ms, for the statements that follow in this transaction).
-- Pages: none: a lock.
-- Returns: whether it was free.
SELECT pg_try_advisory_xact_lock(%(space)s::int, %(number)s::int),
    set_config('lock_timeout', %(lock_timeout)s::int || 'ms', true)
