-- Purpose: the state of jobs by number or key, live or finished, in one queue, with small results.
-- Parameters: project, queue; seqs, keys (arrays); inline (bytes as stored: a larger result stays behind; null: all
--   results stay behind); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key (leasequeue_keyed); for each job one look at
--   leasequeue_jobresult_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey, leasequeue_deadletter_pkey,
--   leasequeue_record_pkey, leasequeue_attempt_job. What stands nowhere of these is leased: the claims are read once,
--   by leasequeue_claim_deadline from the floor on.
-- Pages: 20 + 20 a row, and the live claims
-- Returns: live jobs first. The state is the job's, or ENDED + the result's.
WITH queue AS MATERIALIZED (
    SELECT id, max_deliveries, dedup_until, {now()} AS now
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), known AS MATERIALIZED (
    SELECT j.*, p.state, p.deliveries, p.expires_at AS expires, p.available_at,
        COALESCE(j.max_deliveries, queue.max_deliveries) AS max
    FROM queue JOIN leasequeue_job j ON j.queue_id = queue.id
    LEFT JOIN LATERAL ({place_of(j)}) p ON true
    WHERE j.seq = ANY (ARRAY(SELECT unnest(%(seqs)s::bigint[]) UNION ALL
            SELECT k.seq FROM leasequeue_keyed(%(keys)s::text[]) k))
        AND ((p.state = {DEAD} OR p.state > {ENDED}) AND p.expires_at <= queue.now) IS NOT TRUE
        AND (queue.dedup_until <> 'claimed' OR (p.state IN ({READY}, {DELAYED}) AND p.deliveries = 0)
            OR j.seq = ANY (%(seqs)s::bigint[]))
), leases AS MATERIALIZED (
    {leases_of(known)}
)
SELECT known.seq, known.queue_id, known.key, known.name, COALESCE(known.state, {LEASED}) AS state_number,
    COALESCE(known.deliveries, leases.deliveries, 1) AS deliveries,
    CASE WHEN r.seq IS NULL THEN known.max END AS max_deliveries, known.created_at,
    COALESCE(known.first_claimed_at, leases.created_at, r.claimed_at) AS first_claimed_at,
    COALESCE(leases.created_at, r.claimed_at, CASE WHEN known.deliveries = 1 THEN known.first_claimed_at
        ELSE GREATEST(known.first_claimed_at, a.at) END) AS claimed_at,
    COALESCE(r.finished_at, d.dead_at) AS finished_at, known.available_at, leases.deadline,
    CASE
        WHEN known.state IS NOT NULL THEN known.expires
        WHEN known.expires_at IS NOT NULL THEN GREATEST(known.expires_at,
            leases.deadline + leases.grace_ms * interval '1 ms') END AS expires_at,
    COALESCE(r.node, leases.node) AS node, COALESCE(r.claim, leases.token) AS claim,
    CASE WHEN r.seq IS NULL THEN COALESCE(d.error_type, a.error_type) ELSE r.error_type END,
    CASE WHEN r.seq IS NULL THEN COALESCE(d.error, a.message) ELSE r.error END, known.progress::text AS progress_json,
    CASE WHEN a.id IS NOT NULL THEN leasequeue_errors(known.seq)::text END AS errors_json,
    CASE WHEN pg_column_size(r.result) <= %(inline)s::int THEN r.result::text END AS result_json,
    pg_column_size(r.result) AS result_size,
    CASE WHEN octet_length(r.result_body) <= %(inline)s::int THEN r.result_body END AS result_body,
    octet_length(r.result_body) AS body_size
FROM known LEFT JOIN leases ON leases.seq = known.seq
LEFT JOIN LATERAL (SELECT * FROM leasequeue_jobresult r WHERE r.seq = known.seq AND known.state > {ENDED} LIMIT 1) r
    ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = known.seq LIMIT 1) d ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = known.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
ORDER BY state_number, known.seq DESC
