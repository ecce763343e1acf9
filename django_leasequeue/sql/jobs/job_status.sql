-- Purpose: what is known of jobs by number or key, live or remembered, in one queue; small results come with it.
-- Parameters: project, queue; seqs, keys (arrays); inline (bytes as stored: a larger result stays behind; null: all results
--   stay behind); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key (leasequeue_keyed); for each job one look at leasequeue_jobresult_pkey, leasequeue_ready_pkey,
--   leasequeue_delayed_pkey, leasequeue_deadletter_pkey, leasequeue_record_pkey, leasequeue_attempt_job. What stands nowhere of
--   these is leased: the claims are read once, by leasequeue_claim_deadline from the floor on.
-- Pages: 20 + 20 a row, and the live claims
-- Returns: live jobs first: the columns of engine.results.Status. state is the job's, or 10 + the result's.
WITH q AS MATERIALIZED (
    SELECT id, max_deliveries, dedup_until, {now()} AS now
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), p AS MATERIALIZED (
    SELECT j.*, p.state, p.deliveries, p.expires, p.available_at, COALESCE(j.max_deliveries, q.max_deliveries) AS max
    FROM q JOIN leasequeue_job j ON j.queue_id = q.id
    LEFT JOIN LATERAL (
        SELECT 10 + r.state AS state, r.deliveries, r.expires_at AS expires, NULL::timestamptz AS available_at
        FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT 0, r.deliveries, r.expires_at, NULL FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT 1, w.deliveries, w.expires_at, w.available_at FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT 3, x.deliveries, x.expires_at, NULL FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
        UNION ALL
        SELECT 4, 0, o.expires_at, NULL FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        LIMIT 1) p ON true
    WHERE j.seq = ANY (ARRAY(SELECT unnest(%(seqs)s::bigint[]) UNION ALL
            SELECT k.seq FROM leasequeue_keyed(%(keys)s::text[]) k))
        AND ((p.state = 3 OR p.state > 10) AND p.expires <= q.now) IS NOT TRUE
        AND (q.dedup_until <> 'claimed' OR (p.state IN (0, 1) AND p.deliveries = 0) OR j.seq = ANY (%(seqs)s::bigint[]))
), h AS MATERIALIZED (
    {leases_of(p)}
)
SELECT p.seq, p.queue_id, p.key, p.name, COALESCE(p.state, 2) AS state, COALESCE(p.deliveries, h.deliveries, 1),
    CASE WHEN r.seq IS NULL THEN p.max END, p.created_at, COALESCE(p.first_claimed_at, h.created_at, r.claimed_at),
    COALESCE(h.created_at, r.claimed_at, CASE WHEN p.deliveries = 1 THEN p.first_claimed_at
        ELSE GREATEST(p.first_claimed_at, a.at) END),
    COALESCE(r.finished_at, d.dead_at), p.available_at, h.deadline, CASE WHEN p.state IS NOT NULL THEN p.expires
        WHEN p.expires_at IS NOT NULL THEN GREATEST(p.expires_at, h.deadline + h.grace_ms * interval '1 ms') END,
    COALESCE(r.node, h.node), COALESCE(r.claim, h.token),
    CASE WHEN r.seq IS NULL THEN COALESCE(d.error_type, a.error_type) ELSE r.error_type END,
    CASE WHEN r.seq IS NULL THEN COALESCE(d.error, a.message) ELSE r.error END,
    p.progress::text, CASE WHEN a.id IS NOT NULL THEN leasequeue_errors(p.seq)::text END,
    CASE WHEN pg_column_size(r.result) <= %(inline)s::int THEN r.result::text END, pg_column_size(r.result),
    CASE WHEN octet_length(r.result_body) <= %(inline)s::int THEN r.result_body END, octet_length(r.result_body)
FROM p LEFT JOIN h ON h.seq = p.seq
LEFT JOIN LATERAL (SELECT * FROM leasequeue_jobresult r WHERE r.seq = p.seq AND p.state > 10 LIMIT 1) r ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = p.seq LIMIT 1) d ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = p.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
ORDER BY state, p.seq DESC
