-- Purpose: which install this is: a lake has the events of one. Databases of one server, and schemas of one database,
--   share its transactions, so that nothing else would tell them apart.
-- Parameters: system (the one that a lake notes; null: none).
-- Index: none: a row for each timeline that ever was.
-- Pages: whole tables: a row for each timeline that ever was.
-- Returns: the system's identifier; the database; the schema; whether the database was on the given system before.
SELECT leasequeue_system(), current_database()::text, c.relnamespace::regnamespace::text,
    EXISTS (SELECT FROM leasequeue_timeline WHERE system = %(system)s::text)
FROM pg_class c WHERE c.oid = 'leasequeue_leaseevent'::regclass
