-- Purpose: pause a queue, or resume it and wake its waiting workers.
-- Parameters: project, name, paused, now.
-- Index: leasequeue_queue_name.
-- Pages: 40
UPDATE leasequeue_queue q
SET paused_at = CASE WHEN %(paused)s::bool
    THEN COALESCE(q.paused_at, %(now)s::timestamptz, clock_timestamp()) END
WHERE q.project = %(project)s AND q.name = %(name)s
RETURNING q.id, CASE WHEN NOT %(paused)s::bool THEN pg_notify({channel.jobs}, 'q' || q.id)::text END
