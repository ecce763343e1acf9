-- Purpose: workers as they said of themselves last, with what they run; one that was not seen for as long as its row's lease is
--   'gone', and runs nothing.
-- Parameters: size, nodes (text[]; null: all), lease (seconds), now.
-- Index: leasequeue_worker_seen, or the unique one on node.
-- Pages: 20 + 0.1 a row
-- Returns: id, node, host, pid, project, queues, concurrency, state, started_at, seen_at, seconds since it was seen, completed,
--   failed, retried, lost, running (json), info (json), stop_requested_at.
SELECT id, node, host, pid, project, queues, concurrency, CASE WHEN s.gone THEN 'gone' ELSE state END, started_at, seen_at,
    s.silent, completed, failed, retried, lost, CASE WHEN s.gone THEN '[]' ELSE running::text END, info::text, stop_requested_at
FROM leasequeue_worker CROSS JOIN LATERAL (
    SELECT x.silent, x.silent > %(lease)s::int AS gone FROM (
        SELECT extract(epoch FROM COALESCE(%(now)s::timestamptz, clock_timestamp()) - seen_at)::float8 AS silent) x) s
WHERE %(nodes)s::text[] IS NULL OR node = ANY (%(nodes)s::text[])
ORDER BY seen_at DESC LIMIT %(size)s::int
