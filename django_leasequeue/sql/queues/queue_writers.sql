-- Purpose: the transactions that have written jobs and are open, or are about to: statements take the lock of their tables before
--   they read anything.
-- Parameters: known (text[]: only these; null: all), pause (seconds to wait afterwards).
-- Index: none, memory only.
-- Pages: none: catalogs and locks.
-- Returns: their virtual transactions (text[]; null: none), this session's not among them.
SELECT (SELECT array_agg(l.virtualtransaction) FROM pg_locks l
    WHERE l.relation = 'leasequeue_job'::regclass AND l.mode = 'RowExclusiveLock' AND l.pid <> pg_backend_pid()
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (%(known)s::text[] IS NULL OR l.virtualtransaction = ANY (%(known)s::text[]))),
    pg_sleep(%(pause)s::float8)::text
