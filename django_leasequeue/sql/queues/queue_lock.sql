-- Purpose: keep writers from a queue, until the transaction ends. They see it at once, in the row's xmax,
--   and wait for the advisory lock (queue_hold.sql).
-- Parameters: project, name.
-- Index: leasequeue_queue_name.
-- Pages: 30
-- Returns: the queue's id; nothing if there is none, or another session holds it.
SELECT id FROM leasequeue_queue
WHERE project = %(project)s AND name = %(name)s AND pg_try_advisory_xact_lock(1280657735, id::int) FOR UPDATE SKIP LOCKED
