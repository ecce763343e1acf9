-- Purpose: staged replays of jobs that failed for good, first part: lock each of them, and forget the staged rows of those that are
--   not there any more (replayed before, expired). A row without a queue goes to the job's own; meta keeps what the producer wrote and
--   says where the job came from. Keys as in replay_jobs.
-- Parameters: parts, low (exclusive), high (numbers of the stage's rows, at most some thousands), project.
-- Index: leasequeue_lakestage_pkey, leasequeue_jobresult_pkey, leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 20 + 40 a row
-- Returns: seq of each job, false (it is known where to), whether it let go of its key.
WITH s AS MATERIALIZED (
    SELECT id, source_seq, queue, meta FROM leasequeue_lakestage
    WHERE id > %(low)s::bigint AND id <= %(high)s::bigint AND ARRAY[part] <@ %(parts)s::uuid[]
), d AS MATERIALIZED (
    SELECT r.seq, r.deliveries, NULLIF(r.fingerprint, '') AS fingerprint, q.name AS queue, j.*
    FROM leasequeue_jobresult r CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = r.queue_id OFFSET 0) q
    CROSS JOIN LATERAL (
        SELECT key IS NOT NULL AND NOT generated AS keyed, meta FROM leasequeue_job WHERE seq = r.seq OFFSET 0) j
    WHERE r.seq = ANY (ARRAY(SELECT source_seq FROM s)) AND q.project = %(project)s::text AND r.state = 2
    ORDER BY r.seq FOR UPDATE OF r SKIP LOCKED
), m AS MATERIALIZED (
    SELECT DISTINCT ON (d.seq) s.id, d.*, s.meta AS staged, COALESCE(NULLIF(s.queue, ''), d.queue) AS target,
        json_build_object('$replayed_from', d.queue, '$replayed_seq', d.seq, '$replayed_deliveries', d.deliveries,
            '$replayed_fingerprint', d.fingerprint) AS stamp
    FROM s JOIN d ON d.seq = s.source_seq ORDER BY d.seq, s.id
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
SELECT m.seq, false, m.seq = ANY (ARRAY(SELECT seq FROM freed)) FROM m
