-- Purpose: staged replays, first part: lock each dead letter where it stands, or each job that failed for good
--   (results), and forget the staged rows of those that are not there any more (replayed before, redriven, cancelled,
--   expired) or that another session has locked. A row without a queue goes where the letter came from, or to the job's
--   own; meta keeps what the producer wrote and the context, and says where the job came from. A job that goes back to
--   its own queue lets go of its key, by the word that its key is generated: see replay_done, which takes out what was
--   enqueued.
-- Parameters: parts, low (exclusive), high (numbers of the stage's rows, at most some thousands), project, results.
-- Index: leasequeue_lakestage_pkey, leasequeue_deadletter_pkey, leasequeue_jobresult_pkey, leasequeue_job_pkey,
--   leasequeue_ready_pkey, leasequeue_record_pkey, leasequeue_queue_pkey.
-- Pages: 20 + 60 a row
-- Returns: seq of each job, whether it is not known where to, whether it let go of its key.
WITH stage AS MATERIALIZED (
    SELECT id, source_seq, queue, meta FROM leasequeue_lakestage
    WHERE id > %(low)s::bigint AND id <= %(high)s::bigint AND ARRAY[part] <@ %(parts)s::uuid[]
), letters AS MATERIALIZED (
    SELECT o.*, NULLIF(o.print, '') AS fingerprint, q.name AS queue, j.*
    FROM (
        SELECT * FROM (SELECT x.seq, x.queue_id, x.in_place, x.deliveries, x.fingerprint AS print
            FROM leasequeue_deadletter x
            WHERE NOT %(results)s::bool AND x.seq = ANY (ARRAY(SELECT source_seq FROM stage)) ORDER BY x.seq
                FOR UPDATE SKIP LOCKED) x
        UNION ALL
        SELECT * FROM (SELECT r.seq, r.queue_id, true, r.deliveries, r.fingerprint FROM leasequeue_jobresult r
            WHERE %(results)s::bool AND r.seq = ANY (ARRAY(SELECT source_seq FROM stage)) AND r.state = {result.FAILED}
            ORDER BY r.seq FOR UPDATE SKIP LOCKED) r) o
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = o.queue_id OFFSET 0) q
    CROSS JOIN LATERAL (
        SELECT rank, COALESCE(position, seq) AS position, source_queue, key IS NOT NULL AND NOT generated AS keyed, meta
        FROM leasequeue_job WHERE seq = o.seq OFFSET 0) j
    WHERE q.project = %(project)s::text
), located AS MATERIALIZED (
    SELECT letters.*, CASE WHEN letters.in_place THEN letters.queue ELSE (
        SELECT h.name FROM leasequeue_queue h WHERE h.id = letters.source_queue AND h.type = 'queue') END AS home
    FROM letters CROSS JOIN LATERAL (
        SELECT 1 WHERE letters.in_place
        UNION ALL
        SELECT * FROM (SELECT 1 FROM leasequeue_record o
            WHERE NOT letters.in_place AND o.queue_id = letters.queue_id AND o.seq = letters.seq
                FOR UPDATE SKIP LOCKED) b
        UNION ALL
        SELECT c.* FROM (VALUES ({FRESH}::smallint), ({AGAIN}::smallint)) AS v(lane) CROSS JOIN LATERAL (
            SELECT 1 FROM leasequeue_ready r WHERE NOT letters.in_place AND r.queue_id = letters.queue_id
                AND r.rank = letters.rank
                AND r.lane = v.lane AND r.position = letters.position AND r.seq = letters.seq FOR UPDATE SKIP LOCKED) c
        LIMIT 1) p
), matched AS MATERIALIZED (
    SELECT DISTINCT ON (located.seq) stage.id, located.*, stage.meta AS staged,
        COALESCE(NULLIF(stage.queue, ''), located.home) AS target,
        json_build_object('$replayed_from', located.queue, '$replayed_seq', located.seq, '$replayed_deliveries',
            located.deliveries, '$replayed_fingerprint', located.fingerprint) AS stamp
    FROM stage JOIN located ON located.seq = stage.source_seq ORDER BY located.seq, stage.id
), rewritten AS MATERIALIZED (
    SELECT matched.*, COALESCE(matched.target, '') AS new_queue, CASE
        WHEN COALESCE(matched.staged, matched.meta) IS NULL THEN matched.stamp
        WHEN json_typeof(COALESCE(matched.staged, matched.meta)) = 'object' THEN (SELECT json_object_agg(e.key, e.value)
            FROM (
            SELECT o.key, o.value FROM json_each(COALESCE(matched.staged, matched.meta)) AS o
            WHERE NOT starts_with(o.key, '$')
                OR o.key = '$context'
            UNION ALL SELECT o.key, o.value FROM json_each(matched.stamp) AS o) e)
        ELSE (SELECT json_object_agg(e.key, e.value) FROM (SELECT o.key, o.value FROM json_each(matched.stamp) AS o
            UNION ALL SELECT '$meta', COALESCE(matched.staged, matched.meta)) e) END AS new_meta
    FROM matched
), stamped AS (
    -- (width_bucket finds a number's place in a sorted array: no planner reads the stage for each row.)
    UPDATE leasequeue_lakestage SET
        queue = (ARRAY(SELECT new_queue FROM rewritten ORDER BY id))[width_bucket(id,
            ARRAY(SELECT id FROM rewritten ORDER BY id))],
        meta = (ARRAY(SELECT new_meta FROM rewritten ORDER BY id))[width_bucket(id,
            ARRAY(SELECT id FROM rewritten ORDER BY id))]
    WHERE id = ANY (ARRAY(SELECT id FROM rewritten))
), freed AS (
    UPDATE leasequeue_job SET generated = true WHERE seq = ANY (ARRAY(SELECT seq FROM matched
        WHERE keyed AND target = queue))
    RETURNING seq
), others AS (
    DELETE FROM leasequeue_lakestage WHERE id = ANY (ARRAY(SELECT id FROM stage EXCEPT SELECT id FROM matched))
)
SELECT matched.seq, matched.target IS NULL, matched.seq = ANY (ARRAY(SELECT seq FROM freed)) FROM matched
