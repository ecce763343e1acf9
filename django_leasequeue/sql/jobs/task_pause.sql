-- Purpose: pause a task, and let its workers read so.
-- Parameters: project, name, by, now.
-- Index: leasequeue_pausedtask_name.
-- Pages: 20
INSERT INTO leasequeue_pausedtask (project, name, paused_at, paused_by)
VALUES (%(project)s, %(name)s, {now()}, %(by)s)
ON CONFLICT (project, name) DO NOTHING RETURNING id, pg_notify({channel.jobs}, 'n')::text
