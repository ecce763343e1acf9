-- Purpose: the open transactions that have written jobs or are about to: statements take the lock of their tables
--   before they read anything.
-- Parameters: looking (those that have only read queues, jobs or keys count as well: an enqueue may begin so), pause
--   (seconds to wait before).
-- Index: none, memory only. Members of pg_read_all_stats see age and application of other roles' sessions.
-- Returns: seconds are null where they are not visible. This session's transaction is not among them.
WITH waited AS MATERIALIZED (SELECT pg_sleep(%(pause)s::float8))
SELECT DISTINCT l.virtualtransaction AS transaction, l.pid, COALESCE(p.gid, a.application_name, '') AS name,
    extract(epoch FROM statement_timestamp() - COALESCE(p.prepared, a.xact_start))::float8 AS seconds
FROM waited CROSS JOIN pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid'
    AND x.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
WHERE l.locktype = 'relation' AND l.pid IS DISTINCT FROM pg_backend_pid()
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND CASE WHEN %(looking)s::bool
        THEN l.relation IN ('leasequeue_queue'::regclass, 'leasequeue_job'::regclass, 'leasequeue_uniquekey'::regclass)
        ELSE l.relation = 'leasequeue_job'::regclass AND l.mode = 'RowExclusiveLock' END
