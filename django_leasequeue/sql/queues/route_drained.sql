-- Purpose: note that a moved queue has no job left in the database that it came from. Not before every process knows of
-- the move: until then one may add jobs there.
-- Parameters: project, name, after (seconds), now.
-- Index: leasequeue_route_name.
-- Pages: 10
-- Returns: the name, if it is noted.
UPDATE leasequeue_route SET drained_at = {now()}
WHERE project = %(project)s AND name = %(name)s AND drained_at IS NULL
    AND moved_at < {now()} - %(after)s::float8 * interval '1 second'
RETURNING name
