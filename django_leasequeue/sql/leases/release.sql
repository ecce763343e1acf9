-- Purpose: give leased jobs back: at once, after a delay, or (deliveries used up, exhaust_at = release) dead in place.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length or empty: seqs, claims (their tokens),
--   delays (ms; null: the queue's backoff), error_types, errors, tracebacks, fingerprints, rans (ms that the handler ran), ttls (ms
--   for which it is kept if it is dead now; null: as the job or the queue says);
--   unstarted (the handler never ran: the delivery does not count), suspended (nor does it here: it ran, and goes on later; any delay), keeping (of suspended
--   ones under a limit: the seqs of those that keep its slot);
--   now, autocommit.
--   A failure waits for 10 ms at least from the fifth delivery on, doubled by each, at most for 1 s: whatever the delay, a job that
--   fails at once does not keep a worker busy.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey, leasequeue_attempt_job, leasequeue_jobstep_pkey, leasequeue_deadletter_pkey; of members leasequeue_member_pkey,
--   leasequeue_limitkey_pkey, leasequeue_limit_pkey. Tells the stream that
--   the job was leased to.
-- Pages: 210 + 32 a row
-- Returns: seq, outcome (0 ready, 1 delayed, 3 dead in place, 2 used up and bound for another topic: left leased with its
--   failure noted, move it next), available_at, deliveries, queue id, key, name, token.
WITH t AS MATERIALIZED (SELECT {now()} AS now, pg_current_xact_id()::text::bigint AS txid), k AS MATERIALIZED (
    SELECT c.*, q.requeue, q.dead_letter, q.leases_durable, q.dead_ttl_ms, q.exhaust_at, q.max_deliveries AS queue_max, q.backoff,
        q.backoff_base_ms AS base, q.backoff_max_ms AS most
    FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE
        AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (q.late_ack = 'accept' OR c.deadline >= (SELECT now FROM t))
    ORDER BY c.token, c.part FOR NO KEY UPDATE OF c
), x AS MATERIALIZED (
    SELECT k.token, k.part, u.seq, COALESCE(u.deliveries, 1) AS delivery, i.*
    FROM k CROSS JOIN LATERAL unnest(k.seqs, k.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (
        unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(delays)s::bigint[]),
        unnest(%(error_types)s::text[]), unnest(%(errors)s::text[]), unnest(%(tracebacks)s::text[]),
        unnest(%(fingerprints)s::text[]), unnest(%(rans)s::int[]), unnest(%(ttls)s::bigint[])
    ) AS i(i_seq, i_claim, delay, error_type, error, traceback, fingerprint, ran, ttl) ON i.i_seq = u.seq AND i.i_claim = k.token
), h AS MATERIALIZED (
    SELECT x.*, t.now, t.txid, k.queue_id, k.requeue, k.created_at AS claimed_at, w.wait,
        j.rank, j.key, j.name, j.tag, j.reply_to, j.max_deliveries, COALESCE(j.position, j.seq) AS position, j.first_claimed_at,
        CASE WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at, k.deadline + k.grace_ms * interval '1 ms') END AS expires_at,
        CASE WHEN k.dead_ttl_ms > 0 THEN t.now + COALESCE(x.ttl, j.result_ttl_ms, k.dead_ttl_ms) * interval '1 ms' END AS dead_until,
        (j.reply_to IS NOT NULL)::int + 2 * (j.result_ttl_ms IS NOT NULL)::int
            + 64 * (COALESCE(pg_column_size(j.data), 0) + COALESCE(pg_column_size(j.body), 0) > 1500 AND {bytes(j)} > 16384)::int + 4 * (k.flags & 4 <> 0 AND EXISTS (
            SELECT FROM leasequeue_deadletter d WHERE d.seq = x.seq AND NOT d.in_place OFFSET 0))::int
            + 8 * (x.error_type IS NOT NULL OR %(suspended)s::bool OR k.flags & 8 <> 0 AND (EXISTS (
            SELECT FROM leasequeue_attempt a WHERE a.seq = x.seq OFFSET 0) OR EXISTS (
            SELECT FROM leasequeue_jobstep p WHERE p.seq = x.seq OFFSET 0)))::int
            + CASE WHEN %(unstarted)s::bool AND NOT %(suspended)s::bool THEN k.flags & 32 ELSE 0 END
            + 128 * (k.flags & 128 <> 0 AND EXISTS (SELECT FROM leasequeue_member m WHERE m.seq = x.seq OFFSET 0))::int AS flags,
        CASE WHEN s.spent AND COALESCE(k.dead_letter, 'self') <> 'self' THEN 2 WHEN s.spent THEN 3 WHEN w.wait > 0 OR p.pays THEN 1 ELSE 0 END AS state
    FROM t, x JOIN k ON k.token = x.token AND k.part = x.part
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = x.seq OFFSET 0 FOR NO KEY UPDATE) j
    CROSS JOIN LATERAL (SELECT LEAST(k.base * 2.0 ^ LEAST(x.delivery, 40), k.most)::bigint AS cap) e
    CROSS JOIN LATERAL (SELECT LEAST(CASE WHEN %(suspended)s::bool THEN 3162240000000 ELSE 86400000 END, GREATEST(COALESCE(x.delay, CASE k.backoff
        WHEN 'fixed' THEN LEAST(k.base, k.most)
        WHEN 'linear' THEN LEAST(k.base::bigint * x.delivery, k.most)
        WHEN 'exponential' THEN e.cap
        WHEN 'exp_equal_jitter' THEN e.cap / 2 + (random() * (e.cap - e.cap / 2))::bigint
        WHEN 'exp_full_jitter' THEN (random() * e.cap)::bigint
        ELSE 0 END), CASE WHEN x.error_type IS NOT NULL AND x.delivery > 4
            THEN LEAST(10 * 2 ^ LEAST(x.delivery - 5, 10), 1000)::bigint ELSE 0 END)) AS wait OFFSET 0) w
    CROSS JOIN LATERAL (SELECT NOT %(unstarted)s::bool AND k.exhaust_at = 'release' AND COALESCE(j.max_deliveries,
        CASE WHEN k.dead_letter IS NULL THEN 0 ELSE k.queue_max END) BETWEEN 1 AND x.delivery AS spent) s
    {pays(k.flags, x.seq)} WHERE x.i_seq IS NOT NULL
), b AS MATERIALIZED (
    SELECT h.seq, nextval('leasequeue_job_seq_seq') AS position FROM h WHERE h.state = 0 AND h.requeue = 'back' ORDER BY h.seq
), m AS MATERIALIZED (
    SELECT x.token, x.part, array_agg(x.seq) FILTER (WHERE h.seq IS NULL OR h.state = 2) AS seqs,
        array_agg(x.delivery) FILTER (WHERE h.seq IS NULL OR h.state = 2) AS deliveries
    FROM x LEFT JOIN h ON h.seq = x.seq GROUP BY x.token, x.part HAVING bool_or(h.state <> 2)
), {shrink(%(tokens)s::bigint[])}, noted AS (
    {came_back(h)}
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT h.seq, h.queue_id, h.now, h.delivery, %(node)s::text, h.error_type, COALESCE(h.error, ''), COALESCE(h.traceback, ''),
        COALESCE(h.fingerprint, '')
    FROM h WHERE h.error_type IS NOT NULL
), forgotten AS (
    DELETE FROM leasequeue_attempt WHERE id = ANY (ARRAY(
        SELECT o.id FROM h CROSS JOIN LATERAL (
            SELECT a.id FROM leasequeue_attempt a WHERE a.seq = h.seq ORDER BY a.id + 0 DESC OFFSET 19 LIMIT 100) o
        WHERE h.error_type IS NOT NULL AND h.delivery > 20))
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, expires_at,
        tag)
    SELECT h.queue_id, h.rank, CASE WHEN b.seq IS NULL THEN 1 ELSE 2 END, COALESCE(b.position, h.position), h.seq,
        h.delivery - (%(unstarted)s::bool)::int, h.flags, h.now, h.max_deliveries, h.expires_at, h.tag
    FROM h LEFT JOIN b ON b.seq = h.seq WHERE h.state = 0
), delayed AS (
    INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, expires_at, tag)
    SELECT h.seq, h.queue_id, h.now + h.wait * interval '1 ms', h.delivery - (%(unstarted)s::bool)::int, h.rank,
        h.flags + 512 * (h.flags & 128 <> 0 AND h.seq = ANY (%(keeping)s::bigint[]))::int,
        h.max_deliveries, h.expires_at, h.tag
    FROM h WHERE h.state = 1
), last AS MATERIALIZED (
    SELECT h.seq, COALESCE(h.error_type, a.error_type, 'MAX_ATTEMPTS') AS error_type, COALESCE(h.error, a.message) AS error,
        COALESCE(h.fingerprint, a.fingerprint, '') AS fingerprint
    FROM h LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = h.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
    WHERE h.state = 3
), dead AS (
    INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, expires_at, deliveries, in_place, error_type, error, fingerprint)
    SELECT h.seq, h.queue_id, h.now, h.dead_until, h.delivery, true, last.error_type, last.error, last.fingerprint
    FROM h JOIN last ON last.seq = h.seq
    {dead_again()}
), deadened AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + n.n
    FROM (SELECT queue_id, count(*) AS n FROM h WHERE state = 3 GROUP BY queue_id) n WHERE q.id = n.queue_id
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs, deliveries, ran,
        detail)
    SELECT e.txid, e.now, e.queue_id, e.token, min(e.seq), max(e.seq), e.kind, %(node)s::text, e.name, array_agg(e.seq ORDER BY e.seq),
        array_agg(e.delivery ORDER BY e.seq), CASE WHEN count(e.ran) > 0 THEN array_agg(e.ran ORDER BY e.seq) END, e.detail
    FROM (
        SELECT h.*, k.kind, jsonb_strip_nulls(jsonb_build_object('error_type', COALESCE(h.error_type, l.error_type),
            'fingerprint', COALESCE(h.fingerprint, l.fingerprint),
            'available_at', CASE WHEN h.state = 1 THEN h.now + h.wait * interval '1 ms' END,
            CASE WHEN %(suspended)s::bool THEN 'suspended' ELSE 'unstarted' END, CASE WHEN %(unstarted)s::bool THEN true END)) AS detail
        FROM h LEFT JOIN last l ON l.seq = h.seq, LATERAL (SELECT 4 AS kind UNION ALL SELECT 8 WHERE h.state = 3) k
        WHERE h.state <> 2) e
    GROUP BY e.txid, e.now, e.queue_id, e.token, e.kind, e.name, e.detail
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent FROM (SELECT DISTINCT queue_id FROM h WHERE state = 0) w
)
SELECT h.seq, h.state, CASE WHEN h.state = 1 THEN h.now + h.wait * interval '1 ms' END, h.delivery, h.queue_id, h.key, h.name,
    h.token, (SELECT count(sent) FROM wake),
    CASE WHEN h.state = 3 AND h.reply_to IS NOT NULL THEN {tell_callers(h, 2)} END,
    (SELECT {lazily(bool_and(NOT leases_durable))} FROM k),
    (SELECT CASE WHEN %(autocommit)s::bool AND bool_or(k.flags & 128 <> 0) THEN set_config('leasequeue.alone', 'on', true) END FROM k),
    {tell_streams()} FROM h
