-- Purpose: stop leading, and tell those who wait for it.
-- Parameters: space, number, channel.
-- Pages: none: a lock.
-- Returns: whether this connection led.
SELECT pg_advisory_unlock(%(space)s::int, %(number)s::int), pg_notify(%(channel)s::text, 'resigned')::text
