-- Purpose: what is known of a job by its key, in any queue of a project: the live job, else its remembered result.
-- Parameters: project, key, now.
-- Index: leasequeue_job_key, leasequeue_result_key.
-- Returns: at most one row: state (job state, or 10 + result state), queue (the one it was enqueued to), priority, name,
--   data, errors, result, node, deliveries, run_at, created_at, first_claimed_at, claimed_at, finished_at, whether it
--   is a dead letter.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), found AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.state::int AS state, j.rank, j.name, j.data, j.errors, NULL::jsonb AS result, j.node,
        j.deliveries, j.available_at, j.created_at, j.first_claimed_at, j.claimed_at, j.dead_at AS finished_at,
        j.dead_at IS NOT NULL AS dead, CASE WHEN j.dead_at IS NOT NULL THEN j.source_queue END AS source_queue
    FROM leasequeue_job j, t
    WHERE j.key = %(key)s::text AND NOT (j.state = 3 AND j.expires_at IS NOT NULL AND j.expires_at <= t.now)
    UNION ALL
    SELECT r.seq, r.queue_id, 10 + r.state, r.rank, r.name, r.data, r.errors, r.result, r.node,
        r.deliveries, NULL, r.created_at, r.first_claimed_at, r.claimed_at, r.finished_at, false, NULL
    FROM leasequeue_jobresult r, t
    WHERE r.key = %(key)s::text AND r.expires_at > t.now
)
SELECT f.state, COALESCE(s.name, q.name), CASE q.priority_order WHEN 'desc' THEN -f.rank WHEN 'asc' THEN f.rank ELSE 0 END,
    f.name, f.data::text, f.errors::text, f.result::text, f.node, f.deliveries, f.available_at,
    f.created_at, f.first_claimed_at, f.claimed_at, f.finished_at, f.dead
FROM found f JOIN leasequeue_queue q ON q.id = f.queue_id AND q.project = %(project)s
LEFT JOIN leasequeue_queue s ON s.id = f.source_queue
ORDER BY f.state >= 10, f.seq DESC LIMIT 1
