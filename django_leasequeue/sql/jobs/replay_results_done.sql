-- Purpose: staged replays of jobs that failed for good, second part: take out those that were enqueued in this transaction, with
--   their results, and leave the others as they were: those whose key is taken in the queue that they were to go to.
-- Parameters: parts, low (exclusive), high (numbers of the stage's rows, at most some thousands), project, freed (jobs that let go of
--   their keys).
-- Index: leasequeue_lakestage_pkey, leasequeue_job_key, leasequeue_jobresult_pkey, leasequeue_job_pkey, leasequeue_attempt_job,
--   leasequeue_floor_place.
-- Pages: 20 + 40 a row
-- Returns: how many stayed.
WITH t AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_xact_id()::text::bigint AS txid
), s AS MATERIALIZED (
    SELECT s.source_seq, s.key IS NULL OR EXISTS (
        SELECT FROM leasequeue_job j WHERE j.key = s.key AND NOT j.generated AND j.queue_id = (
            SELECT q.id FROM leasequeue_queue q WHERE q.project = %(project)s::text AND q.name = s.queue)
            AND j.source_seq = s.source_seq) AS added
    FROM leasequeue_lakestage s
    WHERE s.id > %(low)s::bigint AND s.id <= %(high)s::bigint AND ARRAY[s.part] <@ %(parts)s::uuid[]
), d AS MATERIALIZED (
    SELECT r.seq, r.queue_id, j.name FROM leasequeue_jobresult r
    CROSS JOIN LATERAL (SELECT name FROM leasequeue_job WHERE seq = r.seq OFFSET 0) j
    WHERE r.seq = ANY (ARRAY(SELECT source_seq FROM s WHERE added))
), results AS (
    DELETE FROM leasequeue_jobresult WHERE seq = ANY (ARRAY(SELECT seq FROM d))
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM d))
        AND (SELECT set_config('leasequeue.removes', statement_timestamp()::text, true)) IS NOT NULL
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
), kept AS (
    UPDATE leasequeue_job j SET generated = false
    WHERE j.seq = ANY (%(freed)s::bigint[]) AND j.seq = ANY (ARRAY(SELECT source_seq FROM s WHERE NOT added))
        AND NOT EXISTS (SELECT FROM leasequeue_job o WHERE o.key = j.key AND NOT o.generated AND o.queue_id = j.queue_id)
)
SELECT count(*) FROM s WHERE NOT added
