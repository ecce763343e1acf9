-- Purpose: jobs of every queue, live and finished, the newest first, that a filter wants; a number of jobs at a time is
--   looked at.
-- Parameters: below (number, exclusive), size (jobs that are looked at), only (in place of both: these jobs, at most
--   10,000), enough (that are returned); queue (id), task, tag,
--   states (of results + ENDED), since, until (made then), text (a part of an error, its type or traceback, the task,
--   the key, or, if payloads is true, of data and meta, there without spaces, in any case), called (null, or a name and
--   its value in data or meta as JSON without spaces, which is found for text as well), each null: any; of tests of the
--   payload, arrays of one length, as in dead_match: roots, paths, equal, jsons, words.
-- Index: leasequeue_job_pkey, read backwards; of each job that the cheap parts of the filter want one entry of each
--   place.
-- Pages: 40 + 30 a row
-- Returns: on every row how many jobs were looked at, the lowest number and the oldest and newest time of them; then,
--   or nulls, which of them, and a JobHit.
WITH jobs AS MATERIALIZED (
    SELECT j.*, row_number() OVER (ORDER BY j.seq DESC) AS n FROM (
        (SELECT j.seq, j.queue_id, j.created_at, j.rank, j.position, j.key, j.name, j.tag FROM leasequeue_job j
        WHERE j.seq < %(below)s::bigint AND %(only)s::bigint[] IS NULL ORDER BY j.seq DESC LIMIT %(size)s::int)
        UNION ALL
        SELECT j.* FROM unnest(%(only)s::bigint[]) AS o(seq) CROSS JOIN LATERAL (
            SELECT j.seq, j.queue_id, j.created_at, j.rank, j.position, j.key, j.name, j.tag FROM leasequeue_job j
            WHERE j.seq = o.seq OFFSET 0) j) j
), wanted AS MATERIALIZED (
    SELECT j.n, j.seq, s.state, j.queue_id, j.key, j.name, j.created_at, COALESCE(r.finished_at, d.dead_at) AS ended_at,
        COALESCE(r.error_type, d.error_type, a.error_type) AS error_type, COALESCE(r.error, d.error, a.message) AS error
    FROM (SELECT * FROM jobs WHERE (%(queue)s::bigint IS NULL OR queue_id = %(queue)s::bigint)
        AND (%(task)s::text IS NULL OR name = %(task)s::text) AND (%(tag)s::text IS NULL OR tag = %(tag)s::text)
        AND created_at >= COALESCE(%(since)s::timestamptz, '-infinity')
        AND created_at <= COALESCE(%(until)s::timestamptz, 'infinity') OFFSET 0) j
    LEFT JOIN LATERAL (SELECT r.state, r.finished_at, r.error_type, r.error FROM leasequeue_jobresult r
        WHERE r.seq = j.seq OFFSET 0) r ON true
    LEFT JOIN LATERAL (SELECT d.in_place, d.dead_at, d.error_type, d.error FROM leasequeue_deadletter d
        WHERE d.seq = j.seq OFFSET 0) d ON true
    LEFT JOIN LATERAL (SELECT t.error_type, t.message, t.traceback FROM leasequeue_attempt t WHERE t.seq = j.seq
        ORDER BY t.id + 0 DESC LIMIT 1) a ON true
    CROSS JOIN LATERAL (SELECT %(text)s::text IS NULL OR strpos(lower(concat_ws(chr(10), r.error_type, r.error,
        d.error_type, d.error,
            a.error_type, a.message, a.traceback, j.name, j.key)), lower(%(text)s::text)) > 0
        OR %(payloads)s::bool AND (SELECT strpos(p.doc, translate(lower(%(text)s::text), ' ', '')) > 0
                OR %(called)s::text IS NOT NULL AND strpos(translate(p.doc, '}', ','), %(called)s::text || ',') > 0
            FROM (SELECT translate(lower(concat_ws(chr(10), k.data::text, k.meta::text)), ' ', '') AS doc
                FROM leasequeue_job k WHERE k.seq = j.seq OFFSET 0) p) AS found OFFSET 0) wish
    CROSS JOIN LATERAL (SELECT CASE WHEN NOT wish.found THEN NULL WHEN r.state IS NOT NULL THEN r.state + {ENDED}
        WHEN d.in_place THEN {DEAD}
        WHEN EXISTS (SELECT FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq))) THEN {READY}
        WHEN EXISTS (SELECT FROM leasequeue_delayed w WHERE w.seq = j.seq OFFSET 0) THEN {DELAYED}
        WHEN EXISTS (SELECT FROM leasequeue_record o WHERE o.queue_id = j.queue_id
            AND o.seq = j.seq OFFSET 0) THEN {RECORD}
        ELSE {LEASED} END AS state OFFSET 0) s
    WHERE wish.found AND (%(states)s::int[] IS NULL OR s.state = ANY (%(states)s::int[]))
        AND {payload_tests(leasequeue_job k WHERE k.seq = j.seq)}
    ORDER BY j.seq DESC LIMIT %(enough)s::int
)
SELECT l.n, l.low, l.oldest, l.newest, wanted.n, wanted.seq, wanted.state::int AS state_number, q.project,
    COALESCE(q.name, '?') AS queue, wanted.queue_id, wanted.key, wanted.name AS task, wanted.created_at AS enqueued_at,
    wanted.ended_at AS finished_at, wanted.error_type, left(wanted.error, 300) AS error
FROM (SELECT count(*) AS n, min(seq) AS low, min(created_at) AS oldest, max(created_at) AS newest FROM jobs) l
LEFT JOIN wanted ON true LEFT JOIN leasequeue_queue q ON q.id = wanted.queue_id
ORDER BY wanted.seq DESC
