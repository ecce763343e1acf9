-- Purpose: delayed jobs of a queue, the next due first, a page at a time.
-- Parameters: project, queue, at (microseconds) and seq (of the last job seen; null: from the start), size.
-- Index: leasequeue_job_delayed from the floor on.
-- Returns: seq, available_at in microseconds, seq.
WITH q AS MATERIALIZED (
    SELECT q.id, 'epoch'::timestamptz + GREATEST(f.value, %(at)s::bigint) * interval '1 us' AS since,
        'epoch'::timestamptz + %(at)s::bigint * interval '1 us' AS at
    FROM leasequeue_queue q JOIN leasequeue_queuefloor f ON f.queue_id = q.id AND f.kind = 1 AND f.rank = 0
    WHERE q.project = %(project)s AND q.name = %(queue)s
)
SELECT j.seq, (extract(epoch FROM j.available_at) * 1000000)::bigint, j.seq FROM q CROSS JOIN LATERAL (
    SELECT j.seq, j.available_at FROM leasequeue_job j
    WHERE j.queue_id = q.id AND j.state = 1 AND j.available_at >= q.since
        AND (q.at IS NULL OR (j.available_at, j.seq) > (q.at, %(seq)s::bigint))
    ORDER BY j.available_at, j.seq LIMIT %(size)s::int) j
ORDER BY j.available_at, j.seq
