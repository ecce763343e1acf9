-- Purpose: remove jobs and results whose queue is gone, a bounded batch at a time.
-- Parameters: queue (id of the deleted queue), size.
-- Index: leasequeue_job_pkey (a scan: run by deletes of a queue and by the janitor only).
-- Returns: how many rows went.
WITH d AS MATERIALIZED (
    SELECT seq FROM leasequeue_job WHERE queue_id = %(queue)s LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM d)) RETURNING 1
), e AS MATERIALIZED (
    SELECT seq FROM leasequeue_jobresult WHERE queue_id = %(queue)s LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), results AS (
    DELETE FROM leasequeue_jobresult WHERE seq = ANY (ARRAY(SELECT seq FROM e)) RETURNING 1
)
SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM results)
