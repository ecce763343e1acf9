-- Purpose: workers as they said of themselves last; one that was not seen for as long as its row's lease is 'gone', and runs nothing.
-- Parameters: size, lease (seconds), now.
-- Index: leasequeue_worker_seen.
-- Pages: 20 + 0.1 a row
-- Returns: node, state, queues, concurrency, jobs running, completed, failed, retried, lost, seconds since it was seen.
SELECT node, CASE WHEN s.gone THEN 'gone' ELSE state END, queues, concurrency,
    CASE WHEN s.gone THEN 0 ELSE jsonb_array_length(running) END, completed, failed, retried, lost, s.silent
FROM leasequeue_worker CROSS JOIN LATERAL (
    SELECT x.silent, x.silent > %(lease)s::int AS gone FROM (
        SELECT extract(epoch FROM COALESCE(%(now)s::timestamptz, clock_timestamp()) - seen_at)::float8 AS silent) x) s
ORDER BY seen_at DESC LIMIT %(size)s::int
