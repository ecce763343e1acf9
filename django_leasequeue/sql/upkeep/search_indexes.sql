-- Purpose: the indexes that an operator has made for searches by the payload, by their paths.
-- Pages: 40 + 40 a row
SELECT c.relname::text AS name, obj_description(c.oid, 'pg_class') AS path, i.indisvalid AS valid,
    pg_relation_size(c.oid) AS bytes, COALESCE(pg_stat_get_numscans(c.oid), 0) AS scans
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'leasequeue_job'::regclass AND starts_with(c.relname::text, 'leasequeue_find_')
ORDER BY path, name
