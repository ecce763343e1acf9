-- Purpose: which is the oldest transaction that still runs.
-- Parameters: none.
-- Index: none.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint
