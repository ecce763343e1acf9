-- Purpose: workers as they said of themselves last, with what they run.
-- Parameters: size, nodes (text[]; null: all), now.
-- Index: leasequeue_worker_seen, or the unique one on node.
-- Pages: 20 + 0.1 a row
-- Returns: id, node, host, pid, project, queues, concurrency, state, started_at, seen_at, seconds since it was seen, completed,
--   failed, retried, lost, running (json), info (json), stop_requested_at.
SELECT id, node, host, pid, project, queues, concurrency, state, started_at, seen_at,
    extract(epoch FROM COALESCE(%(now)s::timestamptz, clock_timestamp()) - seen_at)::float8, completed, failed, retried,
    lost, running::text, info::text, stop_requested_at
FROM leasequeue_worker WHERE %(nodes)s::text[] IS NULL OR node = ANY (%(nodes)s::text[])
ORDER BY seen_at DESC LIMIT %(size)s::int
