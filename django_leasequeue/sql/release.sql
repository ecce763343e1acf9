-- Purpose: give leased jobs back: at once, after a delay, or (deliveries used up, exhaust_at = release) dead in place.
-- Parameters: project, queue (null: any), node; arrays of equal length or empty: seqs, claims (tokens), delays (ms; null:
--   the queue's backoff), error_types, errors, records (json of the attempt), fingerprints; unstarted (the handler never
--   ran: the delivery does not count); now, autocommit.
-- Index: leasequeue_job_pkey, leasequeue_claim_pkey, leasequeue_floor_place. Tells the stream that the job was leased to.
-- Returns: seq, outcome (0 ready, 1 delayed, 3 dead in place, 2 used up and bound for another topic: left leased with its
--   failure noted, move it next), available_at, deliveries, queue id, key, name.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), i AS MATERIALIZED (
    SELECT * FROM ROWS FROM (
        unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(delays)s::bigint[]),
        unnest(%(error_types)s::text[]), unnest(%(errors)s::text[]), unnest(%(records)s::text[]),
        unnest(%(fingerprints)s::text[])
    ) AS u(i_seq, token, delay, new_error_type, new_error, record, new_fingerprint)
), h AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.node, j.claim, j.deliveries, i.*, q.requeue, q.dead_letter, q.leases_durable,
        CASE WHEN q.dead_ttl_ms > 0 THEN COALESCE(j.result_ttl_ms, q.dead_ttl_ms) END AS dead_ttl_ms,
        NOT %(unstarted)s::bool AND q.exhaust_at = 'release' AND q.dead_letter IS NOT NULL
            AND COALESCE(j.max_deliveries, q.max_deliveries) BETWEEN 1 AND j.deliveries AS spent,
        q.dead_letter <> 'self' AS away, LEAST(86400000, COALESCE(i.delay, CASE q.backoff
            WHEN 'fixed' THEN LEAST(q.backoff_base_ms, q.backoff_max_ms)
            WHEN 'linear' THEN LEAST(q.backoff_base_ms::bigint * j.deliveries, q.backoff_max_ms)
            WHEN 'exponential' THEN e.cap
            WHEN 'exp_equal_jitter' THEN e.cap / 2 + (random() * (e.cap - e.cap / 2))::bigint
            WHEN 'exp_full_jitter' THEN (random() * e.cap)::bigint
            ELSE 0 END)) AS wait
    FROM i JOIN leasequeue_job j ON j.seq = i.i_seq
    JOIN leasequeue_queue q ON q.id = j.queue_id AND q.project = %(project)s
        AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
    CROSS JOIN LATERAL (
        SELECT LEAST(q.backoff_base_ms * 2.0 ^ LEAST(j.deliveries, 40), q.backoff_max_ms)::bigint AS cap) e, t
    WHERE j.state = 2 AND j.node = %(node)s::text
        AND (i.token IS NULL OR j.claim = i.token) AND (q.late_ack = 'accept' OR j.deadline >= t.now)
    ORDER BY j.seq FOR UPDATE OF j
), r AS (
    UPDATE leasequeue_job j SET
        state = CASE WHEN h.spent AND h.away THEN 2 WHEN h.spent THEN 3 WHEN h.wait > 0 THEN 1 ELSE 0 END,
        available_at = CASE WHEN NOT h.spent AND h.wait > 0 THEN t.now + h.wait * interval '1 ms' END,
        position = CASE WHEN h.requeue = 'back' AND h.wait = 0 THEN nextval('leasequeue_job_seq_seq') ELSE j.position END,
        deliveries = j.deliveries - (%(unstarted)s::bool)::int,
        node = CASE WHEN h.spent AND h.away THEN j.node END, claim = CASE WHEN h.spent AND h.away THEN j.claim END,
        deadline = CASE WHEN h.spent AND h.away THEN j.deadline END, dead_at = CASE WHEN h.spent AND NOT h.away THEN t.now END,
        expires_at = CASE WHEN h.spent AND NOT h.away THEN t.now + h.dead_ttl_ms * interval '1 ms' ELSE j.expires_at END,
        errors = CASE WHEN h.record IS NULL THEN j.errors
            WHEN jsonb_array_length(COALESCE(j.errors, '[]')) >= 20 THEN (j.errors - 0) || h.record::jsonb
            ELSE COALESCE(j.errors, '[]') || h.record::jsonb END,
        error_type = COALESCE(h.new_error_type, CASE WHEN h.spent THEN COALESCE(j.error_type, 'MAX_ATTEMPTS')
            ELSE j.error_type END),
        error = COALESCE(h.new_error, j.error),
        fingerprint = COALESCE(h.new_fingerprint, j.fingerprint, CASE WHEN h.spent THEN '' END)
    FROM h, t WHERE j.seq = h.seq
    RETURNING j.seq, j.queue_id, j.rank, j.position, j.state, j.available_at, j.deliveries, j.created_at, j.name, j.key,
        j.reply_to,
        h.node, h.claim, h.deliveries AS delivery, h.new_error_type, h.new_fingerprint, t.now
), floors AS (
    UPDATE leasequeue_queuefloor f SET value = LEAST(f.value, m.low), candidate = LEAST(f.candidate, m.low)
    FROM (SELECT queue_id, rank, min(position) AS low FROM r WHERE state = 0 GROUP BY queue_id, rank) m
    WHERE f.queue_id = m.queue_id AND f.kind = 0 AND f.rank = m.rank AND (f.value > m.low OR f.candidate > m.low)
), deadened AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + n.n
    FROM (SELECT queue_id, count(*) AS n FROM r WHERE state = 3 GROUP BY queue_id) n WHERE q.id = n.queue_id
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at, name,
        detail)
    SELECT pg_current_xact_id()::text::bigint, r.now, r.queue_id, r.seq, k.kind, r.node, r.delivery, r.claim, r.created_at,
        r.name, jsonb_strip_nulls(jsonb_build_object('error_type', r.new_error_type, 'fingerprint', r.new_fingerprint,
            'available_at', r.available_at, 'unstarted', CASE WHEN %(unstarted)s::bool THEN true END))
    FROM r, LATERAL (SELECT 4 AS kind UNION ALL SELECT 8 WHERE r.state = 3) k WHERE r.state <> 2
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, w.queue_id::int)
        THEN pg_advisory_unlock(1280657731, w.queue_id::int)::text
        ELSE pg_notify('leasequeue', 'q' || w.queue_id)::text END AS sent
    FROM (SELECT DISTINCT queue_id FROM r WHERE state = 0) w
)
SELECT r.seq, r.state::int, r.available_at, r.delivery, r.queue_id, r.key, r.name, (SELECT count(sent) FROM wake),
    CASE WHEN r.state = 3 AND r.reply_to IS NOT NULL
        THEN (SELECT string_agg(pg_notify(c, r.seq || ':2:' || COALESCE(r.key, ''))::text, '')
            FROM string_to_table(r.reply_to, ' ') c) END,
    (SELECT CASE WHEN %(autocommit)s::bool AND bool_and(NOT leases_durable)
        THEN set_config('synchronous_commit', 'off', true) END FROM h),
    (SELECT count(pg_notify(split_part(c.connection, ':', 1), split_part(c.connection, ':', 2))::text)
        FROM leasequeue_claim c WHERE c.id = ANY (ARRAY(SELECT claim FROM h)) AND c.connection IS NOT NULL)
FROM r
