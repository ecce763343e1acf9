-- Purpose: one queue with its options.
-- Parameters: project, name.
-- Index: leasequeue_queue_name.
-- Pages: 30
SELECT q.id, q.name, q.paused_at, q.dead_lettered, q.created_at, q.holds_tasks, (to_jsonb(q)
    - '{id,project,name,paused_at,dead_lettered,floors_mended,holds_tasks,created_at,updated_at}'::text[])::text
FROM leasequeue_queue q WHERE q.project = %(project)s AND q.name = %(name)s
