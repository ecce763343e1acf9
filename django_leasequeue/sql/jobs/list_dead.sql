-- Purpose: dead jobs of a queue (state dead), by fingerprint and, within one, the oldest death first; a page at a time.
-- Parameters: project, queue, fingerprint (null: all), after_fingerprint, at (microseconds) and seq (of the last job
--   seen; null: from the start), size.
-- Index: leasequeue_dead_cause; one range from its place on and no alternatives, so that no planner sorts all dead
--   letters. (A dead job always has a fingerprint, an empty one if its failure has none.)
-- Pages: 20 + 0.5 a row
WITH queue AS MATERIALIZED (
    SELECT id, COALESCE('epoch'::timestamptz + %(at)s::bigint * interval '1 us', '-infinity') AS at,
        COALESCE(%(after_fingerprint)s::text, %(fingerprint)s::text, '') AS fingerprint
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
)
SELECT d.seq, d.fingerprint, (extract(epoch FROM d.dead_at) * 1000000)::bigint, d.seq FROM queue CROSS JOIN LATERAL (
    SELECT d.seq, d.fingerprint, d.dead_at FROM leasequeue_deadletter d
    WHERE d.queue_id = queue.id AND d.in_place
        AND (d.fingerprint, d.dead_at) >= (queue.fingerprint, queue.at)
        AND (d.fingerprint, d.dead_at, d.seq + 0) > (queue.fingerprint, queue.at, COALESCE(%(seq)s::bigint, 0))
        AND d.fingerprint <= COALESCE(%(fingerprint)s::text, chr(1114111))
    ORDER BY d.fingerprint, d.dead_at, d.seq + 0 LIMIT %(size)s::int) d
ORDER BY d.fingerprint, d.dead_at, d.seq
