-- Purpose: what of the lease log is gone: what retention noted when it dropped (see ddl/event_log_note), and where the log begins.
-- Index: the system catalogs.
-- Pages: none: catalogs.
-- Returns: the note (null: nothing was dropped), the lowest number that a partition may hold (null: there is none), the system's
--   identifier.
SELECT obj_description('leasequeue_leaseevent'::regclass, 'pg_class'), (
    SELECT min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(-?\d+)''?\)'))[1]::bigint)
    FROM pg_partition_tree('leasequeue_leaseevent'::regclass) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf),
    (SELECT system_identifier::text FROM pg_control_system())
