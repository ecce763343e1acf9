-- Purpose: which is the oldest transaction that still runs.
-- Pages: 20
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint
