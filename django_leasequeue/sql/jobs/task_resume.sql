-- Purpose: end the pause of a task, and let its workers read so.
-- Parameters: project, name.
-- Index: leasequeue_pausedtask_name.
-- Pages: 20
DELETE FROM leasequeue_pausedtask WHERE project = %(project)s AND name = %(name)s
RETURNING id, pg_notify({channel.jobs}, 'n')::text
