-- Purpose: remove results whose retention is over, with their jobs and attempts, oldest first, a bounded batch at a time. What
--   is locked is left for the next time.
-- Parameters: size, now.
-- Index: leasequeue_result_expires, leasequeue_jobresult_pkey, leasequeue_job_pkey, leasequeue_attempt_job,
--   leasequeue_floor_place.
-- Pages: 20 + 10 a row
-- Returns: the seqs that went.
WITH t AS MATERIALIZED (SELECT {now()} AS now), d AS MATERIALIZED (
    SELECT seq FROM leasequeue_jobresult WHERE expires_at <= (SELECT now FROM t)
    ORDER BY expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), j AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM d)) FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM d)) EXCEPT SELECT seq FROM j
), gone AS (
    DELETE FROM leasequeue_jobresult WHERE seq = ANY (ARRAY(SELECT seq FROM d EXCEPT SELECT seq FROM held))
    RETURNING seq, queue_id
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM j)) AND {removing()}
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), heads AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT g.queue_id, 3, 0, g.seq, t.now FROM (SELECT queue_id, max(seq) AS seq FROM gone GROUP BY queue_id) g, t
    WHERE g.seq > {floor(g.queue_id, 3, 0)}
)
SELECT seq FROM gone
