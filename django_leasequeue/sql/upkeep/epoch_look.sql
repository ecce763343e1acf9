-- Purpose: whether the rows of this database were copied into it, so that an epoch has to begin.
-- Index: leasequeue_timeline_pkey.
-- Pages: 20
-- Returns: whether they were (null: there is no row that tells); the next epoch; the transaction that copied the
--   reaper's last row here (null: it was written here), the first one that is yet to come; the schema of this app.
WITH noted AS MATERIALIZED (
    SELECT l.timeline >> {TIMELINE_BITS} AS epoch,
        CASE WHEN l.xmin::text::bigint <> l.mark & 4294967295 THEN l.xmin::text::bigint END AS copied
    FROM leasequeue_timeline l ORDER BY l.timeline DESC LIMIT 1
), clock AS MATERIALIZED (
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS newest
)
SELECT {copied()}, GREATEST(leasequeue_epoch(), noted.epoch) + 1,
    clock.newest - ((clock.newest - noted.copied) & 4294967295), clock.newest,
    (SELECT s.nspname::text FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
        WHERE p.oid = 'leasequeue_epoch()'::regprocedure)
FROM clock LEFT JOIN noted ON true
