-- Purpose: staged replays of dead jobs: take each dead letter out of where it stands, and forget those that are not dead any more
--   (replayed before, redriven, cancelled). The job that the stage holds follows it in the same transaction.
-- Parameters: parts, low (exclusive), high (numbers of the stage's rows, at most some thousands), project.
-- Index: leasequeue_lakestage_pkey, leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_ready_pkey,
--   leasequeue_record_pkey, leasequeue_attempt_job, leasequeue_floor_place.
-- Pages: 20 + 30 a row
WITH t AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_xact_id()::text::bigint AS txid
), s AS MATERIALIZED (
    SELECT id, source_seq FROM leasequeue_lakestage
    WHERE id > %(low)s::bigint AND id <= %(high)s::bigint AND ARRAY[part] <@ %(parts)s::uuid[]
), d AS MATERIALIZED (
    SELECT x.seq, x.queue_id, x.in_place, j.rank, j.position, j.name
    FROM leasequeue_deadletter x CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = x.queue_id OFFSET 0) q
    CROSS JOIN LATERAL (
        SELECT rank, COALESCE(position, seq) AS position, name FROM leasequeue_job WHERE seq = x.seq OFFSET 0) j
    WHERE x.seq = ANY (ARRAY(SELECT source_seq FROM s))
        AND q.project = %(project)s::text
    ORDER BY x.seq FOR UPDATE OF x SKIP LOCKED
), p AS MATERIALIZED (
    -- Two places of a row: where this statement sees it, and where it is when whoever changed it has let go.
    SELECT p.* FROM d CROSS JOIN LATERAL (
        SELECT a.place, b.place AS last FROM (VALUES (2::smallint), (1::smallint)) AS v(lane)
        CROSS JOIN LATERAL (
            SELECT r.ctid AS place FROM leasequeue_ready r
            WHERE r.queue_id = d.queue_id AND r.rank = d.rank AND r.lane = v.lane AND r.position = d.position OFFSET 0) a
        CROSS JOIN LATERAL (
            SELECT r.ctid AS place FROM leasequeue_ready r
            WHERE r.queue_id = d.queue_id AND r.rank = d.rank AND r.lane = v.lane AND r.position = d.position FOR UPDATE) b
        LIMIT 1) p
    WHERE NOT d.in_place
), ready AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM p UNION SELECT last FROM p)) RETURNING seq
), records AS (
    -- Records are never changed: each stays at its place.
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(
        SELECT o.place FROM d CROSS JOIN LATERAL (
            SELECT o.ctid AS place FROM leasequeue_record o WHERE o.queue_id = d.queue_id AND o.seq = d.seq OFFSET 0) o
        WHERE NOT d.in_place))
    RETURNING seq
), gone AS MATERIALIZED (
    SELECT * FROM d WHERE in_place OR seq = ANY (ARRAY(SELECT seq FROM ready UNION ALL SELECT seq FROM records))
), letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), head AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT g.queue_id, 3, 0, g.high, t.now FROM (SELECT queue_id, max(seq) AS high FROM gone GROUP BY queue_id) g, t
    WHERE g.high > COALESCE((SELECT f.value FROM leasequeue_queuefloor f
        WHERE f.queue_id = g.queue_id AND f.kind = 3 AND f.rank = 0 ORDER BY f.value DESC LIMIT 1), 0)
), uncounted AS (
    UPDATE leasequeue_topicstate SET records = NULL, bytes = NULL
    WHERE records IS NOT NULL AND queue_id = ANY (ARRAY(SELECT queue_id FROM gone))
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT t.txid, t.now, g.queue_id, min(g.seq), max(g.seq), 9, g.name, array_agg(g.seq ORDER BY g.seq), '{"by": "spark"}'::jsonb
    FROM (SELECT *, row_number() OVER (PARTITION BY queue_id, name ORDER BY seq) - 1 AS n FROM gone) g, t
    GROUP BY t.txid, t.now, g.queue_id, g.name, g.n / 1000
), first AS MATERIALIZED (
    SELECT min(s.id) AS id FROM s JOIN gone g ON g.seq = s.source_seq GROUP BY s.source_seq
)
DELETE FROM leasequeue_lakestage WHERE id = ANY (ARRAY(SELECT id FROM s WHERE id NOT IN (SELECT id FROM first)))
