-- Purpose: names of queues by number.
-- Parameters: queues (ids).
-- Index: leasequeue_queue_pkey.
-- Pages: 30
SELECT id, project, name FROM leasequeue_queue WHERE id = ANY (%(queues)s::bigint[])
