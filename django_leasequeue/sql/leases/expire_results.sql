-- Purpose: remove results past their retention, with their jobs and attempts, oldest first, a bounded batch at a
--   time. What is locked is left for the next time.
-- Parameters: size, now.
-- Index: leasequeue_result_expires, leasequeue_jobresult_pkey, leasequeue_job_pkey, leasequeue_attempt_job,
--   leasequeue_floor_place.
-- Pages: 20 + 10 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now), due AS MATERIALIZED (
    SELECT seq FROM leasequeue_jobresult WHERE expires_at <= (SELECT now FROM clock)
    ORDER BY expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), locked AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM due)) FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM due)) EXCEPT SELECT seq FROM locked
), gone AS (
    DELETE FROM leasequeue_jobresult WHERE seq = ANY (ARRAY(SELECT seq FROM due EXCEPT SELECT seq FROM held))
    RETURNING seq, queue_id
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM locked)) AND {removing()}
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), heads AS (
    {note_highest(SELECT g.queue_id, clock.now, max(g.seq) AS high FROM gone g, clock GROUP BY g.queue_id, clock.now)}
)
SELECT seq FROM gone
