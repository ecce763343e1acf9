-- Purpose: the dead-letter target of a queue.
-- Parameters: queue (id).
-- Index: leasequeue_queue_pkey.
-- Pages: 30
-- Returns: project, name, dead_letter.
SELECT project, name, dead_letter FROM leasequeue_queue WHERE id = %(queue)s
