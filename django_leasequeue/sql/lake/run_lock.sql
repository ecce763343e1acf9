-- Purpose: serialize runs of a lake's pipeline: the lock of the lake or of its consumer, until the session ends.
-- Parameters: name (of the consumer, or of the lake).
SELECT pg_try_advisory_lock({lock.lakes}, hashtext(%(name)s::text))
