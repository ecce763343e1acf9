-- Purpose: staged replays, first part: lock each dead letter where it stands, or each job that failed for good (results), and forget
--   the staged rows of those that are not there any more (replayed before, redriven, cancelled, expired) or that another session has
--   locked. A row without a queue goes where the letter came from, or to the job's own; meta keeps what the producer wrote and says where
--   the job came from. A job that goes back to its own queue lets go of its key, by the word that its key is generated: see replay_done,
--   which takes out what was enqueued.
-- Parameters: parts, low (exclusive), high (numbers of the stage's rows, at most some thousands), project, results.
-- Index: leasequeue_lakestage_pkey, leasequeue_deadletter_pkey, leasequeue_jobresult_pkey, leasequeue_job_pkey, leasequeue_ready_pkey,
--   leasequeue_record_pkey, leasequeue_queue_pkey.
-- Pages: 20 + 60 a row
-- Returns: seq of each job, whether it is not known where to, whether it let go of its key.
WITH s AS MATERIALIZED (
    SELECT id, source_seq, queue, meta FROM leasequeue_lakestage
    WHERE id > %(low)s::bigint AND id <= %(high)s::bigint AND ARRAY[part] <@ %(parts)s::uuid[]
), d AS MATERIALIZED (
    SELECT o.*, NULLIF(o.print, '') AS fingerprint, q.name AS queue, j.*
    FROM (
        SELECT * FROM (SELECT x.seq, x.queue_id, x.in_place, x.deliveries, x.fingerprint AS print FROM leasequeue_deadletter x
            WHERE NOT %(results)s::bool AND x.seq = ANY (ARRAY(SELECT source_seq FROM s)) ORDER BY x.seq FOR UPDATE SKIP LOCKED) x
        UNION ALL
        SELECT * FROM (SELECT r.seq, r.queue_id, true, r.deliveries, r.fingerprint FROM leasequeue_jobresult r
            WHERE %(results)s::bool AND r.seq = ANY (ARRAY(SELECT source_seq FROM s)) AND r.state = 2
            ORDER BY r.seq FOR UPDATE SKIP LOCKED) r) o
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = o.queue_id OFFSET 0) q
    CROSS JOIN LATERAL (
        SELECT rank, COALESCE(position, seq) AS position, source_queue, key IS NOT NULL AND NOT generated AS keyed, meta
        FROM leasequeue_job WHERE seq = o.seq OFFSET 0) j
    WHERE q.project = %(project)s::text
), g AS MATERIALIZED (
    SELECT d.*, CASE WHEN d.in_place THEN d.queue ELSE (
        SELECT h.name FROM leasequeue_queue h WHERE h.id = d.source_queue AND h.type = 'queue') END AS home
    FROM d CROSS JOIN LATERAL (
        SELECT 1 WHERE d.in_place
        UNION ALL
        SELECT * FROM (SELECT 1 FROM leasequeue_record o
            WHERE NOT d.in_place AND o.queue_id = d.queue_id AND o.seq = d.seq FOR UPDATE SKIP LOCKED) b
        UNION ALL
        SELECT c.* FROM (VALUES (2::smallint), (1::smallint)) AS v(lane) CROSS JOIN LATERAL (
            SELECT 1 FROM leasequeue_ready r WHERE NOT d.in_place AND r.queue_id = d.queue_id AND r.rank = d.rank
                AND r.lane = v.lane AND r.position = d.position AND r.seq = d.seq FOR UPDATE SKIP LOCKED) c
        LIMIT 1) p
), m AS MATERIALIZED (
    SELECT DISTINCT ON (g.seq) s.id, g.*, s.meta AS staged, COALESCE(NULLIF(s.queue, ''), g.home) AS target,
        json_build_object('$replayed_from', g.queue, '$replayed_seq', g.seq, '$replayed_deliveries', g.deliveries,
            '$replayed_fingerprint', g.fingerprint) AS stamp
    FROM s JOIN g ON g.seq = s.source_seq ORDER BY g.seq, s.id
), w AS MATERIALIZED (
    SELECT m.*, COALESCE(m.target, '') AS new_queue, CASE
        WHEN COALESCE(m.staged, m.meta) IS NULL THEN m.stamp
        WHEN json_typeof(COALESCE(m.staged, m.meta)) = 'object' THEN (SELECT json_object_agg(e.key, e.value) FROM (
            SELECT o.key, o.value FROM json_each(COALESCE(m.staged, m.meta)) AS o WHERE NOT starts_with(o.key, '$')
            UNION ALL SELECT o.key, o.value FROM json_each(m.stamp) AS o) e)
        ELSE (SELECT json_object_agg(e.key, e.value) FROM (SELECT o.key, o.value FROM json_each(m.stamp) AS o
            UNION ALL SELECT '$meta', COALESCE(m.staged, m.meta)) e) END AS new_meta
    FROM m
), stamped AS (
    -- (width_bucket finds a number's place in a sorted array: no planner reads the stage for each row.)
    UPDATE leasequeue_lakestage SET
        queue = (ARRAY(SELECT new_queue FROM w ORDER BY id))[width_bucket(id, ARRAY(SELECT id FROM w ORDER BY id))],
        meta = (ARRAY(SELECT new_meta FROM w ORDER BY id))[width_bucket(id, ARRAY(SELECT id FROM w ORDER BY id))]
    WHERE id = ANY (ARRAY(SELECT id FROM w))
), freed AS (
    UPDATE leasequeue_job SET generated = true WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE keyed AND target = queue))
    RETURNING seq
), others AS (
    DELETE FROM leasequeue_lakestage WHERE id = ANY (ARRAY(SELECT id FROM s EXCEPT SELECT id FROM m))
)
SELECT m.seq, m.target IS NULL, m.seq = ANY (ARRAY(SELECT seq FROM freed)) FROM m
