-- Purpose: let new jobs of a queue go to another database.
-- Parameters: project, name, alias, source, now.
-- Index: leasequeue_route_name.
-- Pages: 20
INSERT INTO leasequeue_route AS r (project, name, alias, source, moved_at)
VALUES (%(project)s, %(name)s, %(alias)s, %(source)s, {now()})
ON CONFLICT (project, name) DO UPDATE SET alias = excluded.alias, source = excluded.source,
    moved_at = excluded.moved_at, drained_at = NULL, writers = NULL
RETURNING r.name
