-- Purpose: partitions of the lease log that retention has detached and not yet dropped (it was interrupted in between).
-- Parameters: mark (the comment that retention leaves on them).
SELECT n.nspname::text, c.relname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_class p
    ON p.oid = 'leasequeue_leaseevent'::regclass
WHERE c.relnamespace = p.relnamespace AND c.relkind = 'r' AND NOT c.relispartition
    AND starts_with(c.relname, 'leasequeue_leaseevent_p') AND obj_description(c.oid, 'pg_class') = %(mark)s::text
