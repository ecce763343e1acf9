-- Purpose: of a few groups: how many dead letters (capped), how many in each time bucket (capped), and the newest as a
--   sample.
-- Parameters: queues (ids) and fingerprints, arrays of one length; since, until (null: any); low (where the first
--   bucket begins), step (microseconds of a bucket), buckets (how many), cap (of a count), bucket_cap.
-- Index: leasequeue_dead_cause (index-only where vacuum has been), at most cap + buckets * bucket_cap entries a group;
--   leasequeue_job_pkey. Compared and ordered by (fingerprint, dead_at), as in dead_groups, for planners with old
--   statistics. (The OFFSET keeps the planner from counting a bucket once for each of the sums over it.)
-- Pages: 20 + 0.6 a row
-- Returns: in the order given: count (at most cap + 1), counts of the buckets (each at most bucket_cap + 1), then of
--   the newest dead letter: seq, name, error_type, the beginning of its error.
WITH span AS MATERIALIZED (
    SELECT COALESCE(%(since)s::timestamptz, '-infinity') AS since, COALESCE(%(until)s::timestamptz, 'infinity') AS until
)
SELECT c.n, h.counts, s.seq, j.name, s.error_type, left(s.error, 300)
FROM ROWS FROM (unnest(%(queues)s::bigint[]), unnest(%(fingerprints)s::text[])) WITH ORDINALITY AS u(queue_id,
    fingerprint, ord)
CROSS JOIN span
CROSS JOIN LATERAL (
    SELECT array_agg(b.n ORDER BY b.i) AS counts, sum(b.n)::bigint AS n, bool_or(b.n > %(bucket_cap)s::int) AS clipped
    FROM (
        SELECT i, (SELECT count(*) FROM (
            SELECT FROM leasequeue_deadletter d WHERE d.queue_id = u.queue_id
                AND (d.fingerprint, d.dead_at)
                    >= (u.fingerprint, %(low)s::timestamptz + i * %(step)s::bigint * interval '1 us')
                AND (d.fingerprint, d.dead_at)
                    < (u.fingerprint, %(low)s::timestamptz + (i + 1) * %(step)s::bigint * interval '1 us')
            ORDER BY d.fingerprint, d.dead_at LIMIT %(bucket_cap)s::int + 1) x) AS n
        FROM generate_series(0, %(buckets)s::int - 1) AS i OFFSET 0) b
) h
CROSS JOIN LATERAL (
    SELECT CASE WHEN h.clipped THEN (SELECT count(*) FROM (
        SELECT FROM leasequeue_deadletter d WHERE d.queue_id = u.queue_id
            AND (d.fingerprint, d.dead_at) >= (u.fingerprint, span.since)
            AND (d.fingerprint, d.dead_at) <= (u.fingerprint, span.until)
        ORDER BY d.fingerprint, d.dead_at LIMIT %(cap)s::int + 1) x) ELSE LEAST(h.n, %(cap)s::int + 1) END AS n
) c
LEFT JOIN LATERAL (
    SELECT d.seq, d.error_type, d.error FROM leasequeue_deadletter d
    WHERE d.queue_id = u.queue_id AND (d.fingerprint, d.dead_at) >= (u.fingerprint, span.since)
        AND (d.fingerprint, d.dead_at) <= (u.fingerprint, span.until)
    ORDER BY d.fingerprint DESC, d.dead_at DESC, d.seq + 0 DESC LIMIT 1) s ON true
LEFT JOIN LATERAL (SELECT j.name FROM leasequeue_job j WHERE j.seq = s.seq OFFSET 0) j ON true
ORDER BY u.ord
