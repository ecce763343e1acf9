-- Purpose: the queues that were moved to another database.
-- Parameters: size.
-- Index: leasequeue_route_pkey.
-- Pages: 20 + 0.1 a row
-- Returns: project, name, alias for new jobs, alias that they went to before, whether jobs may be left there.
SELECT project, name, alias, source, drained_at IS NULL FROM leasequeue_route ORDER BY id LIMIT %(size)s::int
