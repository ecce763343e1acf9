-- Purpose: workers as they said of themselves last.
-- Parameters: size, now.
-- Index: leasequeue_worker_seen.
-- Pages: 20 + 0.1 a row
-- Returns: node, state, queues, concurrency, jobs running, completed, failed, retried, lost, seconds since it was seen.
SELECT node, state, queues, concurrency, jsonb_array_length(running), completed, failed, retried, lost,
    extract(epoch FROM COALESCE(%(now)s::timestamptz, clock_timestamp()) - seen_at)::float8
FROM leasequeue_worker ORDER BY seen_at DESC LIMIT %(size)s::int
