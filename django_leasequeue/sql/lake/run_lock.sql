-- Purpose: let one run of a lake's pipeline at a time: the lock of the lake or of its consumer, until the session ends.
-- Parameters: name (of the consumer, or of the lake).
-- Pages: none: a lock.
-- Returns: whether it was free.
SELECT pg_try_advisory_lock(1280657740, hashtext(%(name)s::text))
