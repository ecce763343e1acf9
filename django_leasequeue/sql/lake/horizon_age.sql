-- Purpose: the horizon of the lease log, and the age of the oldest transaction that holds it back.
-- Index: none: the list of sessions. Sessions of other roles are seen by members of pg_read_all_stats.
SELECT {horizon()},
    COALESCE(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8, COALESCE(a.application_name, '')
FROM (VALUES (1)) AS one(n) LEFT JOIN (
    SELECT xact_start, application_name FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1
) a ON true
