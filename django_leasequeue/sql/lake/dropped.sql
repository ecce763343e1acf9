-- Purpose: the missing part of the lease log: the note of retention (see ddl/event_log_note), and where the log begins.
-- Returns: the note (null: nothing was dropped), the lowest number that a partition may hold (null: there is none).
SELECT obj_description('leasequeue_leaseevent'::regclass, 'pg_class'), (
    SELECT min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''?(-?[0-9]+)''?[)]'))[1]::bigint)
    FROM pg_partition_tree('leasequeue_leaseevent'::regclass) t JOIN pg_class c ON c.oid = t.relid WHERE t.isleaf)
