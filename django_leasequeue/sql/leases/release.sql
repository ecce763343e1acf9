-- Purpose: give leased jobs back: at once, after a delay, or (deliveries used up, exhaust_at = release) dead in place.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length or empty: seqs, claims
--   (their tokens), delays (ms; null: the queue's backoff), error_types, errors, tracebacks, fingerprints, rans (ms
--   that the handler ran), ttls (ms for which it is kept if it is dead now; null: as the job or the queue says);
--   unstarted (the handler never ran: the delivery does not count), suspended (nor does it here: it ran, and goes on
--   later; any delay), keeping (of suspended ones under a limit: the seqs of those that keep its slot), suspects (those
--   that are suspects then; null: of a claim with one, what is unstarted); now, autocommit, alone. A failure waits for
--   10 ms at least from the fifth delivery on, doubled by each, at most for 1 s: whatever the delay, a job that fails
--   at once does not keep a worker busy.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey, leasequeue_attempt_job, leasequeue_jobstep_pkey,
--   leasequeue_deadletter_pkey; of members leasequeue_member_pkey, leasequeue_limitkey_pkey, leasequeue_limit_pkey.
--   Tells the stream that the job was leased to.
-- Pages: 210 + 32 a row
-- Returns: seq, outcome (a JobState: ready, delayed, dead in place; leased: used up and bound for another topic, with
--   its failure noted: move it next), available_at, deliveries, queue id, key, name, token.
WITH clock AS MATERIALIZED (SELECT {now()} AS now, {txid()} AS txid), claims AS MATERIALIZED (
    SELECT c.*, q.requeue, q.dead_letter, q.leases_durable, q.dead_ttl_ms, q.exhaust_at, q.max_deliveries AS queue_max,
        q.backoff, q.backoff_base_ms AS base, q.backoff_max_ms AS most
    FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND {may_settle((SELECT now FROM clock))}
    ORDER BY c.token, c.part FOR NO KEY UPDATE OF c
), leases AS MATERIALIZED (
    SELECT claims.token, claims.part, u.seq, COALESCE(u.deliveries, 1) AS delivery, i.*
    FROM claims CROSS JOIN LATERAL unnest(claims.seqs, claims.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (
        unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(delays)s::bigint[]),
        unnest(%(error_types)s::text[]), unnest(%(errors)s::text[]), unnest(%(tracebacks)s::text[]),
        unnest(%(fingerprints)s::text[]), unnest(%(rans)s::int[]), unnest(%(ttls)s::bigint[])
    ) AS i(i_seq, i_claim, delay, error_type, error, traceback, fingerprint, ran, ttl) ON i.i_seq = u.seq
        AND i.i_claim = claims.token
), returned AS MATERIALIZED (
    SELECT leases.*, clock.now, clock.txid, claims.queue_id, claims.requeue, w.wait,
        -- When it was claimed first is kept also where it has not started; of one that has failed it would say that it
        -- has.
        CASE WHEN %(suspended)s::bool OR NOT %(unstarted)s::bool
            OR claims.flags & {FAILED} = 0 THEN claims.created_at END AS claimed_at,
        j.rank, j.key, j.name, j.tag, j.reply_to, j.max_deliveries, COALESCE(j.position, j.seq) AS position,
            j.first_claimed_at,
        -- What has not started yet expires when it would have.
        CASE WHEN j.expires_at IS NULL OR %(unstarted)s::bool AND NOT %(suspended)s::bool AND leases.delivery = 1
            THEN j.expires_at ELSE GREATEST(j.expires_at, claims.deadline + claims.grace_ms * interval '1 ms')
            END AS expires_at,
        CASE WHEN claims.dead_ttl_ms > 0 THEN clock.now + COALESCE(leases.ttl, j.result_ttl_ms,
            claims.dead_ttl_ms) * interval '1 ms' END AS dead_until,
        {REPLY} * (j.reply_to IS NOT NULL)::int + {RESULT_TTL} * (j.result_ttl_ms IS NOT NULL)::int
            + {is_large(j)} + {DEAD_LETTER} * (claims.flags & {DEAD_LETTER} <> 0 AND EXISTS (
            SELECT FROM leasequeue_deadletter d WHERE d.seq = leases.seq AND NOT d.in_place OFFSET 0))::int
            + {FAILED} * (leases.error_type IS NOT NULL OR %(suspended)s::bool OR claims.flags & {FAILED} <> 0
                AND (EXISTS (
            SELECT FROM leasequeue_attempt a WHERE a.seq = leases.seq OFFSET 0) OR EXISTS (
            SELECT FROM leasequeue_jobstep p WHERE p.seq = leases.seq OFFSET 0)))::int
            + CASE WHEN %(suspects)s::bigint[] IS NOT NULL
                THEN {SUSPECT} * (leases.seq = ANY (%(suspects)s::bigint[]))::int
                WHEN %(unstarted)s::bool AND NOT %(suspended)s::bool THEN claims.flags & {SUSPECT} ELSE 0 END
            + {FLOW} * (claims.flags & {FLOW} <> 0 AND EXISTS (SELECT FROM leasequeue_member m
                WHERE m.seq = leases.seq OFFSET 0))::int AS flags,
        CASE WHEN s.spent AND COALESCE(claims.dead_letter, 'self') <> 'self' THEN {LEASED} WHEN s.spent THEN {DEAD}
            WHEN w.wait > 0 OR p.pays THEN {DELAYED} ELSE {READY} END AS state
    FROM clock, leases JOIN claims ON claims.token = leases.token AND claims.part = leases.part
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = leases.seq OFFSET 0 FOR UPDATE) j
    CROSS JOIN LATERAL (SELECT LEAST(claims.base * 2.0 ^ LEAST(leases.delivery, 40), claims.most)::bigint AS cap) e
    CROSS JOIN LATERAL (SELECT LEAST(CASE WHEN %(suspended)s::bool THEN 3162240000000 ELSE 86400000 END,
        GREATEST(COALESCE(leases.delay, CASE claims.backoff
        WHEN 'fixed' THEN LEAST(claims.base, claims.most)
        WHEN 'linear' THEN LEAST(claims.base::bigint * leases.delivery, claims.most)
        WHEN 'exponential' THEN e.cap
        WHEN 'exp_equal_jitter' THEN e.cap / 2 + (random() * (e.cap - e.cap / 2))::bigint
        WHEN 'exp_full_jitter' THEN (random() * e.cap)::bigint
        ELSE 0 END), CASE WHEN leases.error_type IS NOT NULL AND leases.delivery > 4
            THEN LEAST(10 * 2 ^ LEAST(leases.delivery - 5, 10), 1000)::bigint ELSE 0 END)) AS wait OFFSET 0) w
    CROSS JOIN LATERAL (SELECT NOT %(unstarted)s::bool AND claims.exhaust_at = 'release' AND COALESCE(j.max_deliveries,
        CASE WHEN claims.dead_letter IS NULL THEN 0 ELSE claims.queue_max END) BETWEEN 1 AND leases.delivery AS spent) s
    {pays(claims.flags, leases.seq)} WHERE leases.i_seq IS NOT NULL
), back AS MATERIALIZED (
    SELECT seq, nextval('leasequeue_job_seq_seq') AS position FROM returned
    WHERE state = {READY} AND requeue = 'back' ORDER BY returned.seq
), remaining AS MATERIALIZED (
    SELECT leases.token, leases.part, array_agg(leases.seq) FILTER (WHERE returned.seq IS NULL
        OR returned.state = {LEASED}) AS seqs,
        array_agg(leases.delivery) FILTER (WHERE returned.seq IS NULL OR returned.state = {LEASED}) AS deliveries
    FROM leases LEFT JOIN returned ON returned.seq = leases.seq GROUP BY leases.token, leases.part
    HAVING bool_or(returned.state <> {LEASED})
), {shrink(%(tokens)s::bigint[])}, noted AS (
    {came_back(returned)}
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT seq, queue_id, now, delivery, %(node)s::text, error_type, COALESCE(error, ''), COALESCE(traceback, ''),
        COALESCE(fingerprint, '')
    FROM returned WHERE error_type IS NOT NULL
), forgotten AS (
    {oldest_attempts(returned.error_type IS NOT NULL AND returned.delivery > 20)}
), ready AS (
    {into_ready()}
    SELECT returned.queue_id, returned.rank, CASE WHEN back.seq IS NULL THEN {AGAIN} ELSE {FRESH} END,
        COALESCE(back.position, returned.position), returned.seq, returned.delivery - (%(unstarted)s::bool)::int,
        returned.flags, returned.now, returned.max_deliveries, returned.expires_at, returned.tag
    FROM returned LEFT JOIN back ON back.seq = returned.seq WHERE returned.state = {READY}
), delayed AS (
    {into_delayed()}
    SELECT seq, queue_id, now + wait * interval '1 ms', delivery - (%(unstarted)s::bool)::int, rank,
        flags + {KEEPS_SLOT} * (flags & {FLOW} <> 0 AND seq = ANY (%(keeping)s::bigint[]))::int
            + {PUT_OFF} * (%(unstarted)s::bool AND NOT %(suspended)s::bool)::int,
        max_deliveries, expires_at, tag
    FROM returned WHERE state = {DELAYED}
), last AS MATERIALIZED (
    SELECT returned.seq, COALESCE(returned.error_type, a.error_type, 'MAX_ATTEMPTS') AS error_type,
        COALESCE(returned.error, a.message) AS error, COALESCE(returned.fingerprint, a.fingerprint, '') AS fingerprint
    FROM returned LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a
        WHERE a.seq = returned.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
    WHERE returned.state = {DEAD}
), dead AS (
    INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, expires_at, deliveries, in_place, error_type, error,
        fingerprint)
    SELECT returned.seq, returned.queue_id, returned.now, returned.dead_until, returned.delivery, true, last.error_type,
        last.error, last.fingerprint
    FROM returned JOIN last ON last.seq = returned.seq
    {dead_again()}
), deadened AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + n.n
    FROM (SELECT queue_id, count(*) AS n FROM returned WHERE state = {DEAD} GROUP BY queue_id) n WHERE q.id = n.queue_id
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs,
        deliveries, ran, detail)
    SELECT e.txid, e.now, e.queue_id, e.token, min(e.seq), max(e.seq), e.kind, %(node)s::text, e.name,
        array_agg(e.seq ORDER BY e.seq), array_agg(e.delivery ORDER BY e.seq),
        CASE WHEN count(e.ran) > 0 THEN array_agg(e.ran ORDER BY e.seq) END, e.detail
    FROM (
        SELECT returned.*, k.kind, jsonb_strip_nulls(jsonb_build_object('error_type',
            COALESCE(returned.error_type, l.error_type),
            'fingerprint', COALESCE(returned.fingerprint, l.fingerprint),
            'available_at', CASE WHEN returned.state = {DELAYED}
                THEN returned.now + returned.wait * interval '1 ms' END,
            CASE WHEN %(suspended)s::bool THEN 'suspended' ELSE 'unstarted' END, CASE
                WHEN %(unstarted)s::bool THEN true END)) AS detail
        FROM returned LEFT JOIN last l ON l.seq = returned.seq, LATERAL (SELECT {event.RELEASED} AS kind
            UNION ALL SELECT {event.DEAD_LETTERED} WHERE returned.state = {DEAD}) k
        WHERE returned.state <> {LEASED}) e
    GROUP BY e.txid, e.now, e.queue_id, e.token, e.kind, e.name, e.detail
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent FROM (SELECT DISTINCT queue_id FROM returned WHERE state = {READY}) w
)
SELECT returned.seq, returned.state,
    CASE WHEN returned.state = {DELAYED} THEN returned.now + returned.wait * interval '1 ms' END, returned.delivery,
    returned.queue_id, returned.key, returned.name, returned.token, (SELECT count(sent) FROM wake),
    CASE WHEN returned.state = {DEAD}
        AND returned.reply_to IS NOT NULL THEN {tell_callers(returned, {result.FAILED})} END,
    (SELECT {lazily(bool_and(NOT leases_durable))} FROM claims),
    {tell_streams()} FROM returned
