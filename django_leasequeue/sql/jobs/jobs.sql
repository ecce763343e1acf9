-- Purpose: live jobs and records by number, in the order asked, with as many payloads as fit a number of bytes.
-- Parameters: project, queue (null: any), seqs, states (smallint[]; null: any), payload (with data, meta, body), bytes.
-- Index: leasequeue_job_pkey; for each job one look at leasequeue_ready_pkey, leasequeue_delayed_pkey,
--   leasequeue_deadletter_pkey, leasequeue_record_pkey, leasequeue_jobresult_pkey, leasequeue_attempt_job. What stands
--   nowhere of these is leased: its queue's claims are read once, by leasequeue_claim_deadline from the floor on.
-- Pages: 20 + 18 a row, and the live claims
-- Returns: bytes of the payloads up to and with this row, whether it fits into the answer (the first always does); then
--   a JobRow.
WITH asked AS MATERIALIZED (
    SELECT u.seq, u.ord FROM unnest(%(seqs)s::bigint[]) WITH ORDINALITY AS u(seq, ord)
), known AS MATERIALIZED (
    SELECT j.*, q.name AS queue, p.state, p.deliveries, p.expires_at AS expires, p.available_at, d.dead_at,
        d.error_type, d.error, d.fingerprint
    FROM leasequeue_job j CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q
    LEFT JOIN LATERAL ({place_of(j)}) p ON true
    LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = j.seq LIMIT 1) d ON true
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND q.project = %(project)s
        AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
), leases AS MATERIALIZED (
    {leases_of(known)}
), jobs AS MATERIALIZED (
    SELECT known.*, row_number() OVER (ORDER BY asked.ord) AS ord, COALESCE(known.state, {LEASED}) AS place,
        leases.token, leases.node, leases.deadline,
        leases.created_at AS claimed_at, leases.grace_ms, COALESCE(known.deliveries, leases.deliveries, 1) AS tries,
        sum(CASE WHEN %(payload)s::bool THEN {bytes(known)} ELSE 0 END)
            OVER (ORDER BY asked.ord ROWS UNBOUNDED PRECEDING) AS total
    FROM known JOIN asked ON asked.seq = known.seq LEFT JOIN leases ON leases.seq = known.seq
    WHERE (known.state >= {ENDED}) IS NOT TRUE
        AND (%(states)s::smallint[] IS NULL OR COALESCE(known.state, {LEASED}) = ANY (%(states)s::smallint[]))
)
SELECT jobs.total::bigint, w.fits, jobs.seq, jobs.queue_id, jobs.queue, jobs.place AS state_number, jobs.rank,
    COALESCE(jobs.position, jobs.seq) AS position, jobs.created_at, jobs.available_at,
    CASE WHEN jobs.place <> {LEASED} THEN jobs.expires WHEN jobs.expires_at IS NOT NULL
        THEN GREATEST(jobs.expires_at, jobs.deadline + jobs.grace_ms * interval '1 ms') END AS expires_at,
    jobs.key, jobs.name, jobs.tag, jobs.origin, jobs.reply_to, jobs.tries AS deliveries, jobs.max_deliveries, jobs.node,
    jobs.token AS claim, jobs.deadline, COALESCE(jobs.first_claimed_at, jobs.claimed_at) AS first_claimed_at,
    COALESCE(jobs.claimed_at, CASE
        WHEN jobs.tries = 1 THEN jobs.first_claimed_at
        ELSE GREATEST(jobs.first_claimed_at, a.at) END) AS claimed_at,
    jobs.dead_at, jobs.source_queue, jobs.source_seq, COALESCE(jobs.error_type, a.error_type) AS error_type,
    COALESCE(jobs.error, a.message) AS error, COALESCE(jobs.fingerprint, a.fingerprint) AS fingerprint,
    CASE WHEN w.shown THEN jobs.data::text END AS data_json, CASE WHEN w.shown THEN jobs.meta::text END AS meta_json,
    CASE WHEN w.shown THEN jobs.body END AS body, jobs.progress::text AS progress_json,
    CASE WHEN a.id IS NOT NULL THEN leasequeue_errors(jobs.seq)::text END AS errors_json
FROM jobs CROSS JOIN LATERAL (
    SELECT jobs.total <= %(bytes)s::bigint OR jobs.ord = 1 AS fits,
        %(payload)s::bool AND (jobs.total <= %(bytes)s::bigint OR jobs.ord = 1) AS shown) w
LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = jobs.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
ORDER BY jobs.ord
