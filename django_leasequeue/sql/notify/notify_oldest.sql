-- Purpose: which is the oldest transaction that still runs.
-- Parameters: none.
-- Index: none.
-- Pages: 20
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint
