-- Purpose: dead jobs of a queue (state dead), by fingerprint and, within one, the oldest death first; a page at a time.
-- Parameters: project, queue, fingerprint (null: all), after_fingerprint, at (microseconds) and seq (of the last job seen;
--   null: from the start), size.
-- Index: leasequeue_job_dead; one range from its place on and no alternatives, so that no planner sorts all dead letters.
--   (A dead job always has a fingerprint, an empty one if its failure has none.)
-- Returns: seq, fingerprint, dead_at in microseconds, seq.
WITH q AS MATERIALIZED (
    SELECT id, COALESCE('epoch'::timestamptz + %(at)s::bigint * interval '1 us', '-infinity') AS at,
        COALESCE(%(after_fingerprint)s::text, %(fingerprint)s::text, '') AS fingerprint
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
)
SELECT j.seq, j.fingerprint, (extract(epoch FROM j.dead_at) * 1000000)::bigint, j.seq FROM q CROSS JOIN LATERAL (
    SELECT j.seq, j.fingerprint, j.dead_at FROM leasequeue_job j
    WHERE j.queue_id = q.id AND j.dead_at IS NOT NULL AND j.state = 3
        AND (j.fingerprint, j.dead_at) >= (q.fingerprint, q.at)
        AND (j.fingerprint, j.dead_at, j.seq) > (q.fingerprint, q.at, COALESCE(%(seq)s::bigint, 0))
        AND j.fingerprint <= COALESCE(%(fingerprint)s::text, U&'\+10FFFF')
    ORDER BY j.fingerprint, j.dead_at, j.seq LIMIT %(size)s::int) j
ORDER BY j.fingerprint, j.dead_at, j.seq
