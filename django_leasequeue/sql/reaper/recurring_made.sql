-- Purpose: the recurring tasks that a service has made in the database, a page at a time.
-- Parameters: service, after (an id, exclusive), size.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 20 + 0.3 a row
SELECT id, task, args::text, kwargs::text, backend, queue_name, priority, expires FROM leasequeue_recurringtask
WHERE id > %(after)s::bigint AND NOT from_settings AND service = %(service)s::text ORDER BY id LIMIT %(size)s::int
