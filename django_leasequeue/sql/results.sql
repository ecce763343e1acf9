-- Purpose: remembered results by number or by key.
-- Parameters: project, queue (null: any), seqs, keys (one of the two is empty), now.
-- Index: leasequeue_jobresult_pkey, leasequeue_result_key.
-- Returns: the columns of engine.read.StoredResult.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), r AS MATERIALIZED (
    SELECT * FROM leasequeue_jobresult WHERE seq = ANY (%(seqs)s::bigint[])
    UNION ALL
    SELECT * FROM leasequeue_jobresult WHERE key = ANY (%(keys)s::text[])
)
SELECT r.seq, r.queue_id, q.name, r.state, r.key, r.name, r.tag, r.node, r.claim, r.deliveries, r.created_at,
    r.first_claimed_at, r.claimed_at, r.finished_at, r.expires_at, r.result::text, r.result_body, r.data::text,
    r.meta::text, r.body, r.progress::text, r.errors::text, r.error_type, r.error, r.fingerprint
FROM r JOIN leasequeue_queue q ON q.id = r.queue_id, t
WHERE q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text) AND r.expires_at > t.now
ORDER BY r.seq
