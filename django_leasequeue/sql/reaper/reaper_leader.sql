-- Purpose: who leads the reapers of this database.
-- Parameters: space, number (of the advisory lock).
-- Pages: none: locks.
-- Returns: process id of the server, address of the client, when it connected, state; nothing if no reaper leads.
SELECT l.pid, COALESCE(host(a.client_addr), 'local'), a.backend_start, a.state
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = %(space)s::bigint::oid AND l.objid = %(number)s::bigint::oid AND l.objsubid = 2 AND l.granted
