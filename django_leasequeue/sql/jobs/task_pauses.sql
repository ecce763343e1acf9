-- Purpose: the paused tasks.
-- Parameters: project (null: any), name (null: any), size, now.
-- Index: leasequeue_pausedtask_name.
-- Pages: 20 + 0.2 a row
SELECT p.project, p.name, p.paused_at, p.paused_by, extract(epoch FROM {now()} - p.paused_at)::float8 AS seconds
FROM leasequeue_pausedtask p
WHERE (%(project)s::text IS NULL OR p.project = %(project)s::text)
    AND (%(name)s::text IS NULL OR p.name = %(name)s::text)
ORDER BY p.project, p.name LIMIT %(size)s::int
