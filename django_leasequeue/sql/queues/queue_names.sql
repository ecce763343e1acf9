-- Purpose: names of queues and of their dead-letter topics, by number.
-- Parameters: queues (ids).
-- Index: leasequeue_queue_pkey.
-- Pages: 30
SELECT id, project, name, dead_letter FROM leasequeue_queue WHERE id = ANY (%(queues)s::bigint[])
