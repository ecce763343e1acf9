-- Purpose: jobs that are not in exactly one table of an existing queue, or have wrong copies of columns there.
-- Parameters: size.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Returns: differences in all, difference, seq, queue id, what is expected, what was found (json).
{keeps_host_settings(verify_snapshot.sql has set the planner)}
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
    SELECT seq, min(queue_id) AS queue_id, string_agg(place, ', ' ORDER BY place) AS places, count(*) AS n,
        min(rank) AS rank,
        min(tag) AS tag, bit_and(flags) AS flags, min(max_deliveries) AS max_deliveries, min(position) AS position
    FROM place GROUP BY seq
), jobs AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.rank, j.tag, j.max_deliveries, COALESCE(j.position, j.seq) AS position,
        {REPLY} * (j.reply_to IS NOT NULL)::int + {RESULT_TTL} * (j.result_ttl_ms IS NOT NULL)::int
            + {DEAD_LETTER} * (l.seq IS NOT NULL)::int
            + {FAILED} * (a.seq IS NOT NULL)::int AS flags, l.seq IS NOT NULL AS letter
    FROM leasequeue_job j LEFT JOIN letter l ON l.seq = j.seq
    LEFT JOIN (SELECT DISTINCT seq FROM leasequeue_attempt) a ON a.seq = j.seq
), differences AS (
    SELECT CASE
            WHEN jobs.seq IS NULL THEN 'place_without_job'
            WHEN q.id IS NULL THEN 'no_queue'
            WHEN s.seq IS NULL THEN 'no_place'
            WHEN s.n > 1 THEN 'two_places'
            WHEN s.queue_id <> jobs.queue_id THEN 'other_queue'
            -- A dead letter of a log that was retried with other data leaves a result.
            WHEN s.places <> 'result' AND (q.type = 'log') <> (s.places = 'record') THEN 'wrong_type'
            WHEN s.places IN ('ready', 'delayed') AND (s.rank, s.max_deliveries) IS DISTINCT FROM (jobs.rank,
                jobs.max_deliveries)
                OR s.places IN ('ready', 'delayed', 'record') AND s.tag IS DISTINCT FROM jobs.tag
                OR s.position <> jobs.position OR jobs.flags & ~s.flags <> 0 OR NOT jobs.letter
                    AND s.flags & {DEAD_LETTER} <> 0
                    AND s.places IN ('ready', 'delayed') THEN 'other_copy' END AS difference,
        COALESCE(jobs.seq, s.seq) AS seq, COALESCE(jobs.queue_id, s.queue_id) AS queue_id, q.type, s.places,
        jobs.seq IS NOT NULL AS is_job, jobs.rank, jobs.tag, jobs.flags, jobs.max_deliveries, jobs.position,
        s.rank AS s_rank, s.tag AS s_tag, s.flags AS s_flags, s.max_deliveries AS s_max_deliveries,
        s.position AS s_position
    FROM jobs FULL JOIN stands s ON s.seq = jobs.seq LEFT JOIN leasequeue_queue q
        ON q.id = COALESCE(jobs.queue_id, s.queue_id)
    UNION ALL
    SELECT 'place_without_job', l.seq, l.queue_id, NULL, 'letter', false, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL
    FROM letter l WHERE NOT EXISTS (SELECT FROM leasequeue_job k WHERE k.seq = l.seq)
)
SELECT count(*) OVER (), difference, seq, queue_id,
    jsonb_strip_nulls(jsonb_build_object('type', type) || CASE WHEN difference = 'other_copy' THEN jsonb_build_object(
        'rank', rank, 'tag', tag, 'flags', flags, 'max_deliveries', max_deliveries, 'position', position)
        ELSE '{}' END)::text,
    jsonb_strip_nulls(jsonb_build_object('place', COALESCE(places, 'nowhere')) || CASE
        WHEN difference = 'other_copy' THEN
        jsonb_build_object('rank', s_rank, 'tag', s_tag, 'flags', s_flags, 'max_deliveries', s_max_deliveries,
        'position', s_position) ELSE '{}' END)::text
FROM differences WHERE difference IS NOT NULL ORDER BY differences.seq LIMIT %(size)s::int
