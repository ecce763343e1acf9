-- Purpose: keep a second benchmark from these tables. Listeners have the locks of the same class from 1 on.
-- Returns: whether the lock was free.
SELECT pg_try_advisory_lock({lock.listeners}, 0)
