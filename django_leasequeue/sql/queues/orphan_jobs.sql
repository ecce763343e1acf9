-- Purpose: remove all jobs of a deleted queue, finished ones and their results too: one step
--   through the table of jobs in order of their numbers.
-- Parameters: queue (its id), after (number, exclusive), size (jobs that are looked at).
-- Index: leasequeue_job_pkey, leasequeue_jobresult_pkey, leasequeue_attempt_job.
-- Pages: 20 + 4 a row
WITH looked AS MATERIALIZED (
    SELECT seq, queue_id FROM leasequeue_job WHERE seq > %(after)s::bigint ORDER BY seq LIMIT %(size)s::int
), gone AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM looked WHERE queue_id = %(queue)s))
    FOR UPDATE SKIP LOCKED
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM gone)) AND {removing()} RETURNING 1
), results AS (
    DELETE FROM leasequeue_jobresult WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM gone))
)
SELECT (SELECT max(seq) FROM looked), (SELECT count(*) FROM jobs)
