-- Purpose: staged replays, second part: take out the dead letters, or the jobs that failed for good with their results,
--   whose jobs were enqueued in this transaction, and leave the others as they were: those whose key is taken in the
--   queue that they were to go to.
-- Parameters: parts, low (exclusive), high (numbers of the stage's rows, at most some thousands), project, results
--   (else dead letters), freed (jobs that let go of their keys).
-- Index: leasequeue_lakestage_pkey, leasequeue_job_key, leasequeue_deadletter_pkey, leasequeue_jobresult_pkey,
--   leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_record_pkey, leasequeue_attempt_job, leasequeue_floor_place.
-- Pages: 20 + 60 a row
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, {txid()} AS txid
), stage AS MATERIALIZED (
    SELECT s.source_seq, s.key IS NULL OR EXISTS (
        SELECT FROM leasequeue_job j WHERE j.key = s.key AND NOT j.generated AND j.queue_id = (
            SELECT q.id FROM leasequeue_queue q WHERE q.project = %(project)s::text AND q.name = s.queue)
            AND j.source_seq = s.source_seq) AS added
    FROM leasequeue_lakestage s
    WHERE s.id > %(low)s::bigint AND s.id <= %(high)s::bigint AND ARRAY[s.part] <@ %(parts)s::uuid[]
), done AS MATERIALIZED (
    SELECT o.seq, o.queue_id, o.in_place, j.rank, j.position, j.name
    FROM (
        SELECT x.seq, x.queue_id, x.in_place FROM leasequeue_deadletter x
        WHERE NOT %(results)s::bool AND x.seq = ANY (ARRAY(SELECT source_seq FROM stage WHERE added))
        UNION ALL
        SELECT r.seq, r.queue_id, true FROM leasequeue_jobresult r
        WHERE %(results)s::bool AND r.seq = ANY (ARRAY(SELECT source_seq FROM stage WHERE added))) o
    CROSS JOIN LATERAL (SELECT rank, COALESCE(position, seq) AS position, name FROM leasequeue_job
        WHERE seq = o.seq OFFSET 0) j
), ready AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(
        SELECT a.place FROM done CROSS JOIN (VALUES ({FRESH}::smallint), ({AGAIN}::smallint)) AS v(lane)
        CROSS JOIN LATERAL (
            SELECT r.ctid AS place FROM leasequeue_ready r WHERE r.queue_id = done.queue_id AND r.rank = done.rank
                AND r.lane = v.lane AND r.position = done.position AND r.seq = done.seq OFFSET 0) a
        WHERE NOT done.in_place))
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(
        SELECT o.place FROM done CROSS JOIN LATERAL (
            SELECT o.ctid AS place FROM leasequeue_record o WHERE o.queue_id = done.queue_id
                AND o.seq = done.seq OFFSET 0) o
        WHERE NOT done.in_place))
), letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM done))
), results AS (
    DELETE FROM leasequeue_jobresult WHERE %(results)s::bool AND seq = ANY (ARRAY(SELECT seq FROM done))
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM done)) AND {removing()}
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM done))
), head AS (
    {note_highest(SELECT done.queue_id, clock.now, max(done.seq) AS high FROM done, clock
        GROUP BY done.queue_id, clock.now)}
), uncounted AS (
    UPDATE leasequeue_topicstate SET records = NULL, bytes = NULL
    WHERE records IS NOT NULL AND queue_id = ANY (ARRAY(SELECT queue_id FROM done))
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT clock.txid, clock.now, g.queue_id, min(g.seq), max(g.seq), {event.REDRIVEN}, g.name,
        array_agg(g.seq ORDER BY g.seq), '{"by": "spark"}'::jsonb
    FROM (SELECT *, row_number() OVER (PARTITION BY queue_id, name ORDER BY seq) - 1 AS n FROM done) g, clock
    GROUP BY clock.txid, clock.now, g.queue_id, g.name, g.n / 1000
), kept AS (
    UPDATE leasequeue_job j SET generated = false
    WHERE j.seq = ANY (%(freed)s::bigint[]) AND j.seq = ANY (ARRAY(SELECT source_seq FROM stage WHERE NOT added))
        AND NOT EXISTS (SELECT FROM leasequeue_job o WHERE o.key = j.key AND NOT o.generated
            AND o.queue_id = j.queue_id)
)
SELECT count(*) FROM stage WHERE NOT added
