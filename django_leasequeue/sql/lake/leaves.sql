-- Purpose: the tables that hold the rows of a relation (partitions, or the table itself), their pages and rows a page.
-- Parameters: relation (name).
-- Returns: schema, table, pages, rows per page (null where not counted), numbers from and to (exclusive; null: any), in
--   order of their numbers, the default partition last.
SELECT n.nspname, c.relname, (pg_relation_size(c.oid) / current_setting('block_size')::bigint)::bigint,
    CASE WHEN c.relpages > 0 AND c.reltuples > 0 THEN (c.reltuples / c.relpages)::float8 END, b.m[1]::bigint,
    b.m[2]::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT regexp_match(pg_get_expr(c.relpartbound, c.oid),
        'FROM [(]''?(-?[0-9]+)''?[)] TO [(]''?(-?[0-9]+)''?[)]') AS m) b
WHERE c.relkind = 'r'
    AND (c.oid = %(relation)s::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree(%(relation)s::regclass)
        WHERE isleaf))
ORDER BY b.m[1]::bigint NULLS LAST, c.relname
