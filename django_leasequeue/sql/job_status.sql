-- Purpose: what is known of jobs by number or key, live or remembered, in one queue; small results come with it.
-- Parameters: project, queue; seqs, keys (arrays); inline (bytes as stored: a larger result stays behind; null: all results
--   stay behind); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key, leasequeue_jobresult_pkey, leasequeue_result_key.
-- Returns: live jobs first: the columns of engine.results.Status. state is the job's, or 10 + the result's.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT id, name, max_deliveries FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
)
SELECT j.seq, j.queue_id, j.key, j.name, j.state::int AS state, j.deliveries, COALESCE(j.max_deliveries, q.max_deliveries),
    j.created_at, j.first_claimed_at, j.claimed_at, j.dead_at, j.available_at, j.deadline, j.expires_at, j.node, j.claim,
    j.error_type, j.error, j.progress::text, j.errors::text, NULL::text, NULL::int, NULL::bytea, NULL::int
FROM q JOIN leasequeue_job j ON j.queue_id = q.id, t
WHERE j.seq = ANY (ARRAY(SELECT unnest(%(seqs)s::bigint[]) UNION ALL
        SELECT k.seq FROM leasequeue_job k, q WHERE k.key = ANY (%(keys)s::text[]) AND k.queue_id = q.id))
    AND NOT (j.state = 3 AND j.expires_at IS NOT NULL AND j.expires_at <= t.now)
UNION ALL
SELECT r.seq, r.queue_id, r.key, r.name, 10 + r.state, r.deliveries, NULL,
    r.created_at, r.first_claimed_at, r.claimed_at, r.finished_at, NULL, NULL, r.expires_at, r.node, r.claim,
    r.error_type, r.error, r.progress::text, r.errors::text,
    CASE WHEN pg_column_size(r.result) <= %(inline)s::int THEN r.result::text END, pg_column_size(r.result),
    CASE WHEN octet_length(r.result_body) <= %(inline)s::int THEN r.result_body END, octet_length(r.result_body)
FROM q JOIN leasequeue_jobresult r ON r.queue_id = q.id, t
WHERE r.seq = ANY (ARRAY(SELECT unnest(%(seqs)s::bigint[]) UNION ALL
        SELECT k.seq FROM leasequeue_jobresult k, q WHERE k.key = ANY (%(keys)s::text[]) AND k.queue_id = q.id))
    AND r.expires_at > t.now
ORDER BY state, seq DESC
