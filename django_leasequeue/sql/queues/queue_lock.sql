-- Purpose: keep writers from a queue, until the transaction ends. They see it at once, in the row's xmax,
--   and wait for the advisory lock (queue_hold.sql).
-- Parameters: project, name.
-- Index: leasequeue_queue_name.
-- Pages: 30
-- Returns: the queue's id, the transaction's isolation level; nothing if there is none, or another session holds it.
SELECT id, current_setting('transaction_isolation') FROM leasequeue_queue
WHERE project = %(project)s AND name = %(name)s AND pg_try_advisory_xact_lock({lock.writers}, id::int)
    FOR UPDATE SKIP LOCKED
