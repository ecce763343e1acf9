-- Purpose: delayed jobs of a queue, the next due first, a page at a time.
-- Parameters: project, queue, at (microseconds) and seq (of the last job seen; null: from the start), size.
-- Index: leasequeue_delayed_due from the floor on, twice: where the page ends is found in the order of the index alone,
--   so that no planner sorts all delayed jobs.
-- Pages: 20 + 0.2 a row
WITH queue AS MATERIALIZED (
    SELECT q.id, 'epoch'::timestamptz + interval '1 us' * GREATEST(%(at)s::bigint,
        {floor(q.id, {floor.DELAYED}, 0)}) AS since,
        'epoch'::timestamptz + %(at)s::bigint * interval '1 us' AS at
    FROM leasequeue_queue q WHERE q.project = %(project)s AND q.name = %(queue)s
)
SELECT d.seq, (extract(epoch FROM d.available_at) * 1000000)::bigint, d.seq FROM queue CROSS JOIN LATERAL (
    SELECT d.seq, d.available_at FROM leasequeue_delayed d
    WHERE d.queue_id = queue.id AND d.available_at >= queue.since
        AND (queue.at IS NULL OR (d.available_at, d.seq) > (queue.at, %(seq)s::bigint))
        AND d.available_at <= COALESCE((
            SELECT e.available_at FROM leasequeue_delayed e WHERE e.queue_id = queue.id
                AND e.available_at >= queue.since
                AND (queue.at IS NULL OR (e.available_at, e.seq) > (queue.at, %(seq)s::bigint))
            ORDER BY e.available_at LIMIT 1 OFFSET %(size)s::int), 'infinity')
    ORDER BY d.available_at, d.seq LIMIT %(size)s::int) d
ORDER BY d.available_at, d.seq
