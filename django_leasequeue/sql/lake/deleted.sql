-- Purpose: count rows that were deleted from the lease log in spite of its trigger, as PostgreSQL's statistics
--   count them (a deletion that was rolled back counts; a dropped partition and a reset of the statistics take their
--   counts along).
SELECT c.relname::text, pg_stat_get_tuples_deleted(c.oid)
FROM pg_partition_tree('leasequeue_leaseevent'::regclass) t JOIN pg_class c ON c.oid = t.relid
WHERE t.isleaf AND pg_stat_get_tuples_deleted(c.oid) > 0
