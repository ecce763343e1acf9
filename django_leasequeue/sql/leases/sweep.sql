-- Purpose: jobs of expired claims become ready again (or dead, where deliveries end at release); each is a suspect then.
-- Parameters: queues (ids), size (claims per queue), jobs (of all claims together; the last claim goes over it), now, autocommit.
-- Index: leasequeue_claim_deadline from the floor on, leasequeue_job_pkey, leasequeue_attempt_job; of members leasequeue_member_pkey,
--   leasequeue_limitkey_pkey, leasequeue_limit_pkey.
-- Pages: 20 + 37 a row
-- Returns: seq, queue id, outcome (0 ready, 1 delayed: it waits for the rate of its limit, 3 dead in place, -1 used up and bound for another topic: move it next), key,
--   name, node, deliveries; first one row with the number of claims removed (seq) and read (outcome; size when some were left
--   for their many jobs).
WITH t AS MATERIALIZED (SELECT {now()} AS now, pg_current_xact_id()::text::bigint AS txid), q AS MATERIALIZED (
    SELECT q.*, 'epoch'::timestamptz + interval '1 us' * {floor(q.id, 2, 0)} AS since
    FROM leasequeue_queue q WHERE q.id = ANY (%(queues)s::bigint[])
), locked AS MATERIALIZED (
    SELECT c.* FROM q CROSS JOIN LATERAL (
        SELECT * FROM leasequeue_claim c
        WHERE c.queue_id = q.id AND c.deadline >= q.since AND c.deadline < (SELECT now FROM t)
        ORDER BY c.deadline LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) c
), k AS MATERIALIZED (
    SELECT * FROM (SELECT *, sum(cardinality(seqs)) OVER (ORDER BY deadline, token, part) - cardinality(seqs) AS ahead
        FROM locked) l WHERE ahead < %(jobs)s::int
), x AS MATERIALIZED (
    SELECT k.token, k.part, k.node, k.deadline, k.created_at AS claimed_at, k.queue_id, u.seq, COALESCE(u.deliveries, 1) AS delivery,
        t.now, t.txid, q.requeue, j.rank, j.key, j.name, j.tag, j.reply_to, j.max_deliveries, COALESCE(j.position, j.seq) AS position,
        j.first_claimed_at,
        CASE WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at, k.deadline + k.grace_ms * interval '1 ms') END AS expires_at,
        CASE WHEN q.dead_ttl_ms > 0 THEN t.now + COALESCE(j.result_ttl_ms, q.dead_ttl_ms) * interval '1 ms' END AS dead_until,
        (j.reply_to IS NOT NULL)::int + 2 * (j.result_ttl_ms IS NOT NULL)::int
            + 64 * (COALESCE(pg_column_size(j.data), 0) + COALESCE(pg_column_size(j.body), 0) > 1500 AND {bytes(j)} > 16384)::int + 40 + 4 * (k.flags & 4 <> 0 AND EXISTS (
            SELECT FROM leasequeue_deadletter d WHERE d.seq = u.seq AND NOT d.in_place OFFSET 0))::int
            + 128 * (k.flags & 128 <> 0 AND EXISTS (SELECT FROM leasequeue_member m WHERE m.seq = u.seq OFFSET 0))::int AS flags,
        CASE WHEN NOT s.spent THEN CASE WHEN p.pays THEN 1 ELSE 0 END WHEN COALESCE(q.dead_letter, 'self') = 'self' THEN 3 ELSE -1 END AS state
    FROM t, k JOIN q ON q.id = k.queue_id CROSS JOIN LATERAL unnest(k.seqs, k.deliveries) AS u(seq, deliveries)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0 FOR NO KEY UPDATE) j
    CROSS JOIN LATERAL (SELECT q.exhaust_at = 'release' AND COALESCE(j.max_deliveries,
        CASE WHEN q.dead_letter IS NULL THEN 0 ELSE q.max_deliveries END) BETWEEN 1 AND COALESCE(u.deliveries, 1) AS spent) s
    {pays(k.flags, u.seq)}
), r AS MATERIALIZED (
    SELECT * FROM x WHERE state >= 0
), b AS MATERIALIZED (
    SELECT r.seq, nextval('leasequeue_job_seq_seq') AS position FROM r WHERE r.state = 0 AND r.requeue = 'back' ORDER BY r.seq
), m AS MATERIALIZED (
    SELECT k.token, k.part, array_agg(x.seq) FILTER (WHERE x.state < 0) AS seqs, array_agg(x.delivery) FILTER (WHERE x.state < 0) AS deliveries
    FROM k LEFT JOIN x ON x.token = k.token AND x.part = k.part GROUP BY k.token, k.part
), gone AS (
    DELETE FROM leasequeue_claim c USING m WHERE c.token = m.token AND c.part = m.part AND m.seqs IS NULL
        AND c.token = ANY (ARRAY(SELECT token FROM k)) RETURNING c.token
), rest AS (
    UPDATE leasequeue_claim c SET seqs = m.seqs, deliveries = m.deliveries
    FROM m WHERE c.token = m.token AND c.part = m.part AND cardinality(m.seqs) < cardinality(c.seqs)
        AND c.token = ANY (ARRAY(SELECT token FROM k)) RETURNING c.token
), noted AS (
    {came_back(r)}
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT r.seq, r.queue_id, r.now, r.delivery, r.node, 'LEASE_EXPIRED',
        'the lease expired: the worker died, hung or lost its database', '', 'lease_expired'
    FROM r
), forgotten AS (
    DELETE FROM leasequeue_attempt WHERE id = ANY (ARRAY(
        SELECT o.id FROM r CROSS JOIN LATERAL (
            SELECT a.id FROM leasequeue_attempt a WHERE a.seq = r.seq ORDER BY a.id + 0 DESC OFFSET 19 LIMIT 100) o
        WHERE r.delivery > 20))
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, expires_at,
        tag)
    SELECT r.queue_id, r.rank, CASE WHEN b.seq IS NULL THEN 1 ELSE 2 END, COALESCE(b.position, r.position), r.seq, r.delivery,
        r.flags, r.now, r.max_deliveries, r.expires_at, r.tag
    FROM r LEFT JOIN b ON b.seq = r.seq WHERE r.state = 0
), delayed AS (
    INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, expires_at, tag)
    SELECT r.seq, r.queue_id, r.now, r.delivery, r.rank, r.flags, r.max_deliveries, r.expires_at, r.tag FROM r WHERE r.state = 1
), dead AS (
    INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, expires_at, deliveries, in_place, error_type, error, fingerprint)
    SELECT r.seq, r.queue_id, r.now, r.dead_until, r.delivery, true, 'LEASE_EXPIRED',
        'the lease expired: the worker died, hung or lost its database', 'lease_expired'
    FROM r WHERE r.state = 3
    {dead_again()}
), deadened AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + n.n
    FROM (SELECT queue_id, count(*) AS n FROM r WHERE state = 3 GROUP BY queue_id) n WHERE q.id = n.queue_id
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs, deliveries,
        detail)
    SELECT r.txid, r.now, r.queue_id, r.token, r.deadline, min(r.seq), max(r.seq), k.kind, r.node, r.name,
        array_agg(r.seq ORDER BY r.seq), array_agg(r.delivery ORDER BY r.seq),
        CASE WHEN r.state = 3 THEN '{"error_type": "LEASE_EXPIRED", "fingerprint": "lease_expired"}'::jsonb END
    FROM r, LATERAL (SELECT 7 AS kind UNION ALL SELECT 8 WHERE r.state = 3) k
    GROUP BY r.txid, r.now, r.queue_id, r.token, r.part, r.deadline, k.kind, r.node, r.name, r.state
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent FROM (SELECT DISTINCT queue_id FROM r WHERE state IN (0, 1)) w
)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM rest) AS seq, NULL::bigint AS queue_id,
    (SELECT CASE WHEN count(*) > (SELECT count(*) FROM k) THEN %(size)s::int ELSE count(*)::int END FROM locked) AS outcome,
    NULL::text AS key, NULL::text AS name, NULL::text AS node, (SELECT count(sent)::int FROM wake) AS deliveries,
    (SELECT {lazily(bool_and(NOT leases_durable))} FROM q)
UNION ALL
SELECT x.seq, x.queue_id, x.state, x.key, x.name, x.node, x.delivery,
    CASE WHEN x.state = 3 AND x.reply_to IS NOT NULL THEN {tell_callers(x, 2)} END FROM x
