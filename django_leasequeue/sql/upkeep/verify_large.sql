-- Purpose: the objects of a storage without a row: a failover, a restore or a truncated table has left them behind.
-- Parameters: storage (alias), names.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as no index has the names.
SELECT n.name FROM unnest(%(names)s::text[]) AS n(name)
WHERE NOT EXISTS (SELECT FROM leasequeue_largeobject o WHERE o.storage = %(storage)s::text AND o.name = n.name)
