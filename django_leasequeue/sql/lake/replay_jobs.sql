-- Purpose: staged replays of dead jobs: take each dead letter out of where it stands, and forget those that are not dead any more
--   (replayed before, redriven, cancelled). The job that the stage holds follows it in the same transaction.
-- Parameters: parts, low (exclusive), high (numbers of the stage's rows, at most some thousands), project.
-- Index: leasequeue_lakestage_pkey, leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_ready_pkey,
--   leasequeue_record_pkey, leasequeue_attempt_job, leasequeue_floor_place.
-- Pages: 20 + 5 a row
WITH t AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_xact_id()::text::bigint AS txid
), s AS MATERIALIZED (
    SELECT id, source_seq FROM leasequeue_lakestage
    WHERE id > %(low)s::bigint AND id <= %(high)s::bigint AND ARRAY[part] <@ %(parts)s::uuid[]
), d AS MATERIALIZED (
    SELECT x.seq, x.queue_id, x.in_place, j.rank, j.position, j.name
    FROM leasequeue_deadletter x JOIN leasequeue_queue q ON q.id = x.queue_id
    CROSS JOIN LATERAL (
        SELECT rank, COALESCE(position, seq) AS position, name FROM leasequeue_job WHERE seq = x.seq OFFSET 0) j
    WHERE x.seq = ANY (ARRAY(SELECT source_seq FROM s))
        AND q.project = %(project)s::text
    ORDER BY x.seq FOR UPDATE OF x SKIP LOCKED
), ready AS (
    DELETE FROM leasequeue_ready r USING d
    WHERE r.queue_id = ANY (ARRAY(SELECT DISTINCT queue_id FROM d WHERE NOT in_place)) AND r.lane IN (0, 1, 2)
        AND r.rank = ANY (ARRAY(SELECT DISTINCT rank FROM d)) AND r.position = ANY (ARRAY(SELECT position FROM d WHERE NOT in_place))
        AND r.seq = d.seq AND NOT d.in_place
    RETURNING r.seq
), records AS (
    DELETE FROM leasequeue_record o USING d
    WHERE o.queue_id = ANY (ARRAY(SELECT DISTINCT queue_id FROM d WHERE NOT in_place))
        AND o.seq = ANY (ARRAY(SELECT seq FROM d WHERE NOT in_place)) AND o.seq = d.seq
    RETURNING o.seq
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
