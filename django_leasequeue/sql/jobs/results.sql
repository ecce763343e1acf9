-- Purpose: remembered results by number or by key.
-- Parameters: project, queue (null: any), seqs, keys (one of the two is empty), now.
-- Index: leasequeue_job_pkey, leasequeue_job_key (leasequeue_keyed), leasequeue_jobresult_pkey, leasequeue_attempt_job.
-- Pages: 20 + 13 a row
-- Returns: the columns of engine.lookup.StoredResult.
SELECT j.seq, j.queue_id, q.name, r.state, j.key, j.name, j.tag, r.node, r.claim, r.deliveries, j.created_at,
    COALESCE(j.first_claimed_at, r.claimed_at), r.claimed_at, r.finished_at, r.expires_at, r.result::text, r.result_body,
    j.data::text, j.meta::text, j.body, j.progress::text,
    CASE WHEN EXISTS (SELECT FROM leasequeue_attempt a WHERE a.seq = j.seq OFFSET 0) THEN leasequeue_errors(j.seq)::text END,
    r.error_type, r.error, r.fingerprint
FROM leasequeue_job j
CROSS JOIN LATERAL (SELECT * FROM leasequeue_jobresult r WHERE r.seq = j.seq OFFSET 0) r
CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q
WHERE j.seq = ANY (ARRAY(SELECT unnest(%(seqs)s::bigint[]) UNION ALL
        SELECT k.seq FROM leasequeue_keyed(%(keys)s::text[]) k
        CROSS JOIN LATERAL (SELECT dedup_until FROM leasequeue_queue q WHERE q.id = k.queue_id OFFSET 0) q
        WHERE q.dedup_until <> 'claimed'))
    AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
    AND r.expires_at > (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()))
ORDER BY j.seq
