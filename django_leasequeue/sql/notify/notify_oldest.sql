-- Purpose: the oldest open transaction.
-- Pages: 20
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint
