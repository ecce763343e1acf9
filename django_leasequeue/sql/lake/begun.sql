-- Purpose: how many transactions have begun to write, ever: the difference of two looks says how busy the database is.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint
