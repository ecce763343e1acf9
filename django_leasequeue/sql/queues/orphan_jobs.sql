-- Purpose: remove the jobs of a queue that is gone wherever they are, finished ones and their results too: one step through the
--   table of jobs in order of their numbers.
-- Parameters: queue (its id), after (number, exclusive), size (jobs that are looked at).
-- Index: leasequeue_job_pkey, leasequeue_jobresult_pkey, leasequeue_attempt_job.
-- Pages: 20 + 4 a row
-- Returns: the last number that was looked at (null: none is left), how many jobs went.
WITH j AS MATERIALIZED (
    SELECT seq, queue_id FROM leasequeue_job WHERE seq > %(after)s::bigint ORDER BY seq LIMIT %(size)s::int
), d AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM j WHERE queue_id = %(queue)s))
    FOR UPDATE SKIP LOCKED
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM d)) AND {removing()} RETURNING 1
), results AS (
    DELETE FROM leasequeue_jobresult WHERE seq = ANY (ARRAY(SELECT seq FROM d))
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM d))
)
SELECT (SELECT max(seq) FROM j), (SELECT count(*) FROM jobs)
