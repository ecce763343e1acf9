-- Purpose: count workers by project and state, of those that were seen last; one that was not seen for as long as
--   its row's lease is 'gone'.
-- Parameters: size (workers that are looked at), lease (seconds), now.
-- Index: leasequeue_worker_seen.
-- Pages: 20 + 0.1 a row
SELECT w.project, CASE WHEN {now()} - w.seen_at > %(lease)s::int * interval '1 s' THEN 'gone' ELSE w.state END,
    count(*)::int
FROM (SELECT * FROM leasequeue_worker ORDER BY seen_at DESC LIMIT %(size)s::int) w GROUP BY 1, 2
