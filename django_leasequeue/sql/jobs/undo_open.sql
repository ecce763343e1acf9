-- Purpose: note at a job, once, that it has a step to undo: how many deliveries it has in truth. It gets more of them,
--   in which nothing but undoing is done.
-- Parameters: seq, more (deliveries), delivery, now.
-- Index: leasequeue_job_pkey, leasequeue_queue_pkey, leasequeue_jobstep_pkey. In the transaction that keeps the step;
--   always on disk.
-- Pages: 60
-- Returns: the note (JSON text): own (the job's max_deliveries), max (0: without a limit).
WITH job AS MATERIALIZED (
    SELECT j.seq, j.max_deliveries AS own, COALESCE(j.max_deliveries,
        CASE WHEN q.dead_letter IS NULL THEN 0 ELSE q.max_deliveries END) AS max
    FROM leasequeue_job j CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q
    WHERE j.seq = %(seq)s::bigint
), more AS (
    UPDATE leasequeue_job j SET max_deliveries = LEAST(job.max::bigint + %(more)s::int, 2147483647) FROM job
    WHERE j.seq = %(seq)s::bigint AND job.max > 0
)
INSERT INTO leasequeue_jobstep (seq, number, name, value, done_at, delivery)
SELECT seq, 0, '$undo', json_build_object('own', own, 'max', max), {now()}, %(delivery)s::int FROM job
WHERE set_config('synchronous_commit', 'on', true) = 'on'
ON CONFLICT (seq, name) DO NOTHING
RETURNING value::text
