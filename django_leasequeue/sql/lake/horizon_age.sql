-- Purpose: how far the lease log may be read, and since when the oldest transaction that holds readers back is running.
-- Index: none: the list of sessions. Sessions of other roles are seen by members of pg_read_all_stats.
-- Pages: none: catalogs.
-- Returns: horizon, age in seconds, application of the oldest.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    COALESCE(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8, COALESCE(a.application_name, '')
FROM (VALUES (1)) AS one(n) LEFT JOIN (
    SELECT xact_start, application_name FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1
) a ON true
