-- Purpose: the database's time, or the held one.
-- Parameters: now.
-- Pages: 20
SELECT {now()}
