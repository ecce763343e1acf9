-- Purpose: the tables that hold the rows of a relation (partitions, or the table itself), their pages and rows a page.
-- Parameters: relation (name).
-- Index: the system catalogs.
-- Returns: schema, table, pages, rows per page (null where nobody counted), in order of their numbers, DEFAULT last.
SELECT n.nspname, c.relname, (pg_relation_size(c.oid) / current_setting('block_size')::bigint)::bigint,
    CASE WHEN c.relpages > 0 AND c.reltuples > 0 THEN (c.reltuples / c.relpages)::float8 END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r'
    AND (c.oid = %(relation)s::regclass OR c.oid IN (SELECT relid FROM pg_partition_tree(%(relation)s::regclass) WHERE isleaf))
ORDER BY substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \(''?(-?\d+)')::bigint NULLS LAST, c.relname
