-- Purpose: what is known of client job ids: live jobs first, then remembered results.
-- Parameters: project, queue (null: any queue), keys, now.
-- Index: leasequeue_job_key, leasequeue_result_key.
-- Returns: key, seq, state (job state, or 10 + result state).
WITH t AS MATERIALIZED (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT j.key, j.seq, j.state::int AS state FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id, t
WHERE j.key = ANY (%(keys)s::text[]) AND q.project = %(project)s
    AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
    AND NOT (j.state = 3 AND j.expires_at IS NOT NULL AND j.expires_at <= t.now)
UNION ALL
SELECT r.key, r.seq, 10 + r.state FROM leasequeue_jobresult r JOIN leasequeue_queue q ON q.id = r.queue_id, t
WHERE r.key = ANY (%(keys)s::text[]) AND q.project = %(project)s
    AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text) AND r.expires_at > t.now
ORDER BY 3
