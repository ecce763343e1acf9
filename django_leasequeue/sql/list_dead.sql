-- Purpose: dead jobs of a queue (state dead), by fingerprint and, within one, the oldest death first; a page at a time.
-- Parameters: project, queue, fingerprint (null: all), after_fingerprint, at (microseconds) and seq (of the last job seen;
--   null: from the start), size.
-- Index: leasequeue_job_dead.
-- Returns: seq, fingerprint, dead_at in microseconds, seq.
WITH q AS MATERIALIZED (
    SELECT id, 'epoch'::timestamptz + %(at)s::bigint * interval '1 us' AS at FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s
)
SELECT j.seq, j.fingerprint, (extract(epoch FROM j.dead_at) * 1000000)::bigint, j.seq FROM q CROSS JOIN LATERAL (
    SELECT j.seq, j.fingerprint, j.dead_at FROM leasequeue_job j
    WHERE j.queue_id = q.id AND j.dead_at IS NOT NULL AND j.state = 3
        AND (%(fingerprint)s::text IS NULL OR j.fingerprint = %(fingerprint)s::text)
        AND (q.at IS NULL OR (j.fingerprint, j.dead_at) >= (%(after_fingerprint)s::text, q.at))
        AND (q.at IS NULL OR (j.fingerprint, j.dead_at, j.seq) > (%(after_fingerprint)s::text, q.at, %(seq)s::bigint))
    ORDER BY j.fingerprint, j.dead_at, j.seq LIMIT %(size)s::int) j
ORDER BY j.fingerprint, j.dead_at, j.seq
