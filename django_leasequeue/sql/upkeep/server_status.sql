-- Purpose: the server, and the oldest transaction, which holds back vacuum.
-- Index: none (system views; other roles' sessions show no query without the privilege).
-- Returns: version, seconds since the oldest transaction with a snapshot or a number began, its process id, its
--   application (nulls: none), bytes of the job table with its indexes, jobs estimated.
SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp() - a.xact_start)::float8, a.pid,
    a.application_name, pg_total_relation_size('leasequeue_job'::regclass),
    (SELECT GREATEST(reltuples, 0)::bigint FROM pg_class WHERE oid = 'leasequeue_job'::regclass)
FROM (SELECT) one LEFT JOIN LATERAL (
    SELECT xact_start, pid, application_name FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
        AND datname = current_database()
    ORDER BY xact_start LIMIT 1) a ON true
