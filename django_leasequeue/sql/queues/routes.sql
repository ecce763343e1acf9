-- Purpose: the queues that were moved to another database.
-- Parameters: size, after (seconds until every process knows of a move), now.
-- Index: leasequeue_route_pkey.
-- Pages: 20 + 0.1 a row
-- Returns: the fields of a Move; when it moved, whether every process knows of that, and the transactions that may
--   still add jobs where it was (null: not looked).
SELECT project, name, alias, source, drained_at IS NULL AS draining, moved_at,
    moved_at < {now()} - %(after)s::float8 * interval '1 second', writers
FROM leasequeue_route ORDER BY id LIMIT %(size)s::int
