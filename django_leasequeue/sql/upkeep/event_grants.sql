-- Purpose: where the rights on partitions of the lease log differ from those on the log. Who reads the log by its name
--   needs rights on that only; who reads a partition by its own name (Spark does) needs them on the partition.
-- Returns: schema, partition, privilege, role (null: PUBLIC), whether it is to be given (else taken). Only of
--   partitions that this role may give rights on.
WITH log AS (
    SELECT DISTINCT a.grantee, a.privilege_type
    FROM pg_class c CROSS JOIN LATERAL aclexplode(COALESCE(c.relacl, acldefault('r', c.relowner))) a
    WHERE c.oid = 'leasequeue_leaseevent'::regclass
), part AS (
    SELECT c.oid, c.relnamespace, c.relname, c.relowner, COALESCE(c.relacl, acldefault('r', c.relowner)) AS acl
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'leasequeue_leaseevent'::regclass AND pg_has_role(c.relowner, 'USAGE')
), own AS (
    SELECT part.oid, a.grantee, a.privilege_type, a.grantor
    FROM part CROSS JOIN LATERAL aclexplode(part.acl) a
), differs AS (
    SELECT part.oid, log.grantee, log.privilege_type, true AS give
    FROM part CROSS JOIN log
    WHERE NOT EXISTS (SELECT FROM own WHERE own.oid = part.oid AND own.grantee = log.grantee
        AND own.privilege_type = log.privilege_type)
    UNION ALL
    SELECT own.oid, own.grantee, own.privilege_type, false
    FROM own JOIN part ON part.oid = own.oid AND part.relowner = own.grantor
    WHERE NOT EXISTS (SELECT FROM log WHERE log.grantee = own.grantee AND log.privilege_type = own.privilege_type)
)
SELECT n.nspname::text, part.relname::text, d.privilege_type, r.rolname::text, d.give
FROM differs d JOIN part ON part.oid = d.oid AND part.relowner <> d.grantee JOIN pg_namespace n
    ON n.oid = part.relnamespace
LEFT JOIN pg_roles r ON r.oid = d.grantee
WHERE d.grantee = 0 OR r.oid IS NOT NULL
ORDER BY part.relname, d.grantee, d.privilege_type
