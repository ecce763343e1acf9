-- Purpose: count the dead rows of the tables in which jobs wait for a slot or a time, as PostgreSQL's statistics have
--   it.
-- Parameters: large (rows).
-- Returns: how many; 0 also where this role may not vacuum, and where so many rows are there that it would take long.
SELECT COALESCE(CASE WHEN sum(GREATEST(c.reltuples,
    0)) <= %(large)s::bigint THEN sum(pg_stat_get_dead_tuples(c.oid)) END, 0)::bigint
FROM pg_class c
WHERE c.oid IN ('leasequeue_delayed'::regclass, 'leasequeue_member'::regclass) AND pg_has_role(c.relowner, 'USAGE')
