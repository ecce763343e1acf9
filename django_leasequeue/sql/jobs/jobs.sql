-- Purpose: live jobs and records by number, in the order asked, with as many payloads as fit a number of bytes.
-- Parameters: project, queue (null: any), seqs, states (smallint[]; null: any), payload (with data, meta, body), bytes.
-- Index: leasequeue_job_pkey; for each job one look at leasequeue_ready_pkey, leasequeue_delayed_pkey,
--   leasequeue_deadletter_pkey, leasequeue_record_pkey, leasequeue_jobresult_pkey, leasequeue_attempt_job. What stands nowhere of
--   these is leased: its queue's claims are read once, by leasequeue_claim_deadline from the floor on.
-- Pages: 20 + 18 a row, and the live claims
-- Returns: bytes of the payloads up to and with this row, whether they are in the answer (the first always is), then the
--   columns of engine.read.JobRow.
WITH i AS MATERIALIZED (
    SELECT u.seq, u.ord FROM unnest(%(seqs)s::bigint[]) WITH ORDINALITY AS u(seq, ord)
), p AS MATERIALIZED (
    SELECT j.*, q.name AS queue, p.state, p.deliveries, p.expires, p.available_at, d.dead_at, d.error_type, d.error, d.fingerprint
    FROM leasequeue_job j CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q
    LEFT JOIN LATERAL (
        SELECT 0 AS state, r.deliveries, r.expires_at AS expires, NULL::timestamptz AS available_at FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT 1, w.deliveries, w.expires_at, w.available_at FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT 3, x.deliveries, x.expires_at, NULL FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
        UNION ALL
        SELECT 4, 0, o.expires_at, NULL FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        UNION ALL
        SELECT 10, 0, NULL, NULL FROM leasequeue_jobresult r WHERE r.seq = j.seq
        LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = j.seq LIMIT 1) d ON true
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND q.project = %(project)s
        AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
), h AS MATERIALIZED (
    {leases_of(p)}
), j AS MATERIALIZED (
    SELECT p.*, row_number() OVER (ORDER BY i.ord) AS ord, COALESCE(p.state, 2) AS place, h.token, h.node, h.deadline,
        h.created_at AS claimed_at, h.grace_ms, COALESCE(p.deliveries, h.deliveries, 1) AS tries,
        sum(CASE WHEN %(payload)s::bool THEN {bytes(p)} ELSE 0 END)
            OVER (ORDER BY i.ord ROWS UNBOUNDED PRECEDING) AS total
    FROM p JOIN i ON i.seq = p.seq LEFT JOIN h ON h.seq = p.seq
    WHERE p.state IS DISTINCT FROM 10
        AND (%(states)s::smallint[] IS NULL OR COALESCE(p.state, 2) = ANY (%(states)s::smallint[]))
)
SELECT j.total::bigint, w.fits, j.seq, j.queue_id, j.queue, j.place, j.rank, COALESCE(j.position, j.seq), j.created_at,
    j.available_at, CASE WHEN j.place <> 2 THEN j.expires WHEN j.expires_at IS NOT NULL
        THEN GREATEST(j.expires_at, j.deadline + j.grace_ms * interval '1 ms') END,
    j.key, j.name, j.tag, j.origin, j.reply_to, j.tries, j.max_deliveries, j.node, j.token, j.deadline,
    COALESCE(j.first_claimed_at, j.claimed_at), COALESCE(j.claimed_at, CASE WHEN j.tries = 1 THEN j.first_claimed_at
        ELSE GREATEST(j.first_claimed_at, a.at) END), j.dead_at, j.source_queue, j.source_seq,
    COALESCE(j.error_type, a.error_type), COALESCE(j.error, a.message), COALESCE(j.fingerprint, a.fingerprint),
    CASE WHEN w.shown THEN j.data::text END, CASE WHEN w.shown THEN j.meta::text END, CASE WHEN w.shown THEN j.body END,
    j.progress::text, CASE WHEN a.id IS NOT NULL THEN leasequeue_errors(j.seq)::text END
FROM j CROSS JOIN LATERAL (
    SELECT j.total <= %(bytes)s::bigint OR j.ord = 1 AS fits,
        %(payload)s::bool AND (j.total <= %(bytes)s::bigint OR j.ord = 1) AS shown) w
LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = j.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
ORDER BY j.ord
