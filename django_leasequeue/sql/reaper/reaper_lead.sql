-- Purpose: become the leader of the reapers of this database, unless there is one.
-- Parameters: space, number (of the advisory lock), session (until resigned or disconnected; false: until the transaction
--   ends, for connections through a pooler).
-- Pages: none: a lock.
-- Returns: whether this connection leads now; null where nothing can be written.
SELECT CASE WHEN current_setting('transaction_read_only')::bool THEN NULL WHEN %(session)s::bool THEN pg_try_advisory_lock(%(space)s::int, %(number)s::int)
    ELSE pg_try_advisory_xact_lock(%(space)s::int, %(number)s::int) END
