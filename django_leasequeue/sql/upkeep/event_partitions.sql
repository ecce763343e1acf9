-- Purpose: the partitions of the lease log, and its last number.
-- Index: catalogs only.
-- Pages: none: catalogs.
-- Returns: the last number drawn (0: none), schema, name, from, to (exclusive; both null for the default partition),
--   bytes, whether it has any row (read for the default partition only; null for the others).
SELECT COALESCE(pg_sequence_last_value(pg_get_serial_sequence('leasequeue_leaseevent', 'id')::regclass), 0)::bigint,
    n.nspname::text, c.relname::text, b.m[1]::bigint, b.m[2]::bigint, pg_total_relation_size(c.oid),
    CASE WHEN b.m IS NULL THEN EXISTS (SELECT FROM leasequeue_leaseevent_default) END
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT regexp_match(pg_get_expr(c.relpartbound, c.oid),
        'FROM [(]''?(-?[0-9]+)''?[)] TO [(]''?(-?[0-9]+)''?[)]') AS m) b
WHERE i.inhparent = 'leasequeue_leaseevent'::regclass
ORDER BY b.m[1]::bigint
