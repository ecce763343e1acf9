-- Purpose: the database's time, or the held one.
-- Parameters: now.
-- Index: none.
-- Returns: the time.
SELECT COALESCE(%(now)s::timestamptz, clock_timestamp())
