-- Purpose: keep a second benchmark out of this database. Queues have the locks of the same class from 1 on.
-- Returns: whether the lock was free.
SELECT pg_try_advisory_lock(1280657731, 0)
