-- Purpose: the numbers of all queues, a page at a time.
-- Parameters: after (id, exclusive), size.
-- Index: leasequeue_queue_pkey.
-- Pages: 20 + 0.1 a row
SELECT id FROM leasequeue_queue WHERE id > %(after)s::bigint ORDER BY id LIMIT %(size)s::int
