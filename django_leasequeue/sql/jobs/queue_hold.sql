-- Purpose: keep a queue from being deleted until the transaction ends; waits for a session that is doing
--   that (queue_lock.sql). A transaction with one snapshot for all its statements holds the row as well: it would not
--   see it go.
-- Parameters: project, name.
-- Index: leasequeue_queue_name.
-- Pages: 30
-- Returns: the queue's id; nothing if there is none. It may be gone once this has waited: look again.
WITH queue AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(name)s
), held AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE id = ANY (ARRAY(SELECT id FROM queue))
        AND current_setting('transaction_isolation') <> 'read committed' FOR KEY SHARE
)
SELECT queue.id, pg_advisory_xact_lock_shared({lock.writers}, queue.id::int)::text, (SELECT count(*) FROM held)
FROM queue
