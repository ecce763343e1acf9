-- Purpose: staged replays of jobs that failed for good: take each failed job and its result out, and forget those that are not
--   there any more (replayed before, expired).
-- Parameters: parts, low (exclusive), high (numbers of the stage's rows, at most some thousands), project.
-- Index: leasequeue_lakestage_pkey, leasequeue_jobresult_pkey, leasequeue_job_pkey, leasequeue_attempt_job, leasequeue_floor_place.
-- Pages: 20 + 5 a row
WITH t AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_xact_id()::text::bigint AS txid
), s AS MATERIALIZED (
    SELECT id, source_seq FROM leasequeue_lakestage
    WHERE id > %(low)s::bigint AND id <= %(high)s::bigint AND ARRAY[part] <@ %(parts)s::uuid[]
), d AS MATERIALIZED (
    SELECT r.seq, r.queue_id, j.name FROM leasequeue_jobresult r JOIN leasequeue_queue q ON q.id = r.queue_id
    CROSS JOIN LATERAL (SELECT name FROM leasequeue_job WHERE seq = r.seq OFFSET 0) j
    WHERE r.seq = ANY (ARRAY(SELECT source_seq FROM s))
        AND q.project = %(project)s::text AND r.state = 2
    ORDER BY r.seq FOR UPDATE OF r SKIP LOCKED
), results AS (
    DELETE FROM leasequeue_jobresult WHERE seq = ANY (ARRAY(SELECT seq FROM d))
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM d))
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM d))
), head AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT g.queue_id, 3, 0, g.high, t.now FROM (SELECT queue_id, max(seq) AS high FROM d GROUP BY queue_id) g, t
    WHERE g.high > COALESCE((SELECT f.value FROM leasequeue_queuefloor f
        WHERE f.queue_id = g.queue_id AND f.kind = 3 AND f.rank = 0 ORDER BY f.value DESC LIMIT 1), 0)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT t.txid, t.now, g.queue_id, min(g.seq), max(g.seq), 9, g.name, array_agg(g.seq ORDER BY g.seq), '{"by": "spark"}'::jsonb
    FROM (SELECT *, row_number() OVER (PARTITION BY queue_id, name ORDER BY seq) - 1 AS n FROM d) g, t
    GROUP BY t.txid, t.now, g.queue_id, g.name, g.n / 1000
), first AS MATERIALIZED (
    SELECT min(s.id) AS id FROM s JOIN d g ON g.seq = s.source_seq GROUP BY s.source_seq
)
DELETE FROM leasequeue_lakestage WHERE id = ANY (ARRAY(SELECT id FROM s WHERE id NOT IN (SELECT id FROM first)))
