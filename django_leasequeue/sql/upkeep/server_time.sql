-- Purpose: the database's time, or the held one.
-- Parameters: now.
-- Index: none.
-- Pages: 20
-- Returns: the time.
SELECT COALESCE(%(now)s::timestamptz, clock_timestamp())
