-- Purpose: every job stands in exactly one place, of a queue that is there, and what the place repeats of it is true.
-- Parameters: size.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Host: whole tables, as verify_snapshot.sql set the planner.
-- Returns: differences in all, difference, seq, queue id, what is expected, what was found (json).
WITH letter AS MATERIALIZED (
    SELECT seq, queue_id FROM leasequeue_deadletter WHERE NOT in_place
), place AS MATERIALIZED (
    SELECT seq, queue_id, 'ready' AS place, rank, tag, flags, max_deliveries, position FROM leasequeue_ready
    UNION ALL
    SELECT seq, queue_id, 'delayed', rank, tag, flags, max_deliveries, NULL FROM leasequeue_delayed
    UNION ALL
    SELECT u.seq, c.queue_id, 'leased', NULL, NULL, c.flags, NULL, NULL
    FROM leasequeue_claim c CROSS JOIN LATERAL (SELECT DISTINCT s.seq FROM unnest(c.seqs) AS s(seq)) u
    UNION ALL
    SELECT seq, queue_id, 'dead', NULL, NULL, NULL, NULL, NULL FROM leasequeue_deadletter WHERE in_place
    UNION ALL
    SELECT seq, queue_id, 'record', NULL, tag, NULL, NULL, NULL FROM leasequeue_record
    UNION ALL
    SELECT seq, queue_id, 'result', NULL, NULL, NULL, NULL, NULL FROM leasequeue_jobresult
), stands AS MATERIALIZED (
    SELECT seq, min(queue_id) AS queue_id, string_agg(place, ', ' ORDER BY place) AS places, count(*) AS n, min(rank) AS rank,
        min(tag) AS tag, bit_and(flags) AS flags, min(max_deliveries) AS max_deliveries, min(position) AS position
    FROM place GROUP BY seq
), j AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.rank, j.tag, j.max_deliveries, COALESCE(j.position, j.seq) AS position,
        (j.reply_to IS NOT NULL)::int + 2 * (j.result_ttl_ms IS NOT NULL)::int + 4 * (l.seq IS NOT NULL)::int
            + 8 * (a.seq IS NOT NULL)::int AS flags, l.seq IS NOT NULL AS letter
    FROM leasequeue_job j LEFT JOIN letter l ON l.seq = j.seq
    LEFT JOIN (SELECT DISTINCT seq FROM leasequeue_attempt) a ON a.seq = j.seq
), d AS (
    SELECT CASE
            WHEN j.seq IS NULL THEN 'place_without_job'
            WHEN q.id IS NULL THEN 'no_queue'
            WHEN s.seq IS NULL THEN 'no_place'
            WHEN s.n > 1 THEN 'two_places'
            WHEN s.queue_id <> j.queue_id THEN 'other_queue'
            WHEN (q.type = 'log') <> (s.places = 'record') THEN 'wrong_type'
            WHEN s.places IN ('ready', 'delayed') AND (s.rank, s.max_deliveries) IS DISTINCT FROM (j.rank, j.max_deliveries)
                OR s.places IN ('ready', 'delayed', 'record') AND s.tag IS DISTINCT FROM j.tag
                OR s.position <> j.position OR j.flags & ~s.flags <> 0 OR NOT j.letter AND s.flags & 4 <> 0
                    AND s.places IN ('ready', 'delayed') THEN 'other_copy' END AS difference,
        COALESCE(j.seq, s.seq) AS seq, COALESCE(j.queue_id, s.queue_id) AS queue_id, q.type, s.places, j.seq IS NOT NULL AS is_job,
        j.rank, j.tag, j.flags, j.max_deliveries, j.position, s.rank AS s_rank, s.tag AS s_tag, s.flags AS s_flags,
        s.max_deliveries AS s_max_deliveries, s.position AS s_position
    FROM j FULL JOIN stands s ON s.seq = j.seq LEFT JOIN leasequeue_queue q ON q.id = COALESCE(j.queue_id, s.queue_id)
    UNION ALL
    SELECT 'place_without_job', l.seq, l.queue_id, NULL, 'letter', false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM letter l WHERE NOT EXISTS (SELECT FROM leasequeue_job k WHERE k.seq = l.seq)
)
SELECT count(*) OVER (), d.difference, d.seq, d.queue_id,
    jsonb_strip_nulls(jsonb_build_object('type', d.type) || CASE WHEN d.difference = 'other_copy' THEN jsonb_build_object(
        'rank', d.rank, 'tag', d.tag, 'flags', d.flags, 'max_deliveries', d.max_deliveries, 'position', d.position)
        ELSE '{}' END)::text,
    jsonb_strip_nulls(jsonb_build_object('place', COALESCE(d.places, 'nowhere')) || CASE WHEN d.difference = 'other_copy' THEN
        jsonb_build_object('rank', d.s_rank, 'tag', d.s_tag, 'flags', d.s_flags, 'max_deliveries', d.s_max_deliveries,
        'position', d.s_position) ELSE '{}' END)::text
FROM d WHERE d.difference IS NOT NULL ORDER BY d.seq LIMIT %(size)s::int
