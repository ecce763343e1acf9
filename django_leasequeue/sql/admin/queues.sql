-- Purpose: queues of all projects, or of one, a page at a time.
-- Parameters: project (null: all), prefix of the name ('' = any), after_project, after_name (exclusive; null: from the
--   start), size.
-- Index: leasequeue_queue_name.
-- Pages: 20 + 0.3 a row
-- Returns: id, project, name, type, paused_at.
SELECT id, project, name, type, paused_at FROM leasequeue_queue
WHERE (%(project)s::text IS NULL OR project = %(project)s::text) AND starts_with(name, %(prefix)s::text)
    AND (project, name) > (COALESCE(%(after_project)s::text, ''), COALESCE(%(after_name)s::text, ''))
ORDER BY project, name LIMIT %(size)s::int
