-- Purpose: the dead-letter target of a queue.
-- Parameters: queue (id).
-- Index: leasequeue_queue_pkey.
-- Pages: 30
SELECT project, name, dead_letter FROM leasequeue_queue WHERE id = %(queue)s
