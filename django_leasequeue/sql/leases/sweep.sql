-- Purpose: jobs of expired claims become ready again (or dead, where deliveries end at release); each is a suspect
--   then.
-- Parameters: queues (ids), size (claims per queue), jobs (of all claims together; the last claim goes over it), now,
--   autocommit, alone.
-- Index: leasequeue_claim_deadline from the floor on, leasequeue_job_pkey, leasequeue_attempt_job; of members
--   leasequeue_member_pkey, leasequeue_limitkey_pkey, leasequeue_limit_pkey.
-- Pages: 20 + 37 a row
-- Returns: seq, queue id, outcome (a JobState: ready, delayed: it waits for the rate of its limit, dead in place; MOVE:
--   used up and bound for another topic), key, name, node, deliveries; first one row with the number of claims removed
--   (seq) and read (outcome; size when some were left for their many jobs).
WITH clock AS MATERIALIZED (SELECT {now()} AS now, {txid()} AS txid), queues AS MATERIALIZED (
    SELECT q.*, {since(q.id, {floor.CLAIM})} AS since
    FROM leasequeue_queue q WHERE q.id = ANY (%(queues)s::bigint[])
), locked AS MATERIALIZED (
    SELECT c.* FROM queues CROSS JOIN LATERAL (
        SELECT * FROM leasequeue_claim c
        WHERE c.queue_id = queues.id AND c.deadline >= queues.since AND c.deadline < (SELECT now FROM clock)
        ORDER BY c.deadline LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) c
), claims AS MATERIALIZED (
    SELECT * FROM (SELECT *, sum(cardinality(seqs)) OVER (ORDER BY deadline, token, part) - cardinality(seqs) AS ahead
        FROM locked) l WHERE ahead < %(jobs)s::int
), leases AS MATERIALIZED (
    SELECT claims.token, claims.part, claims.node, claims.deadline, claims.created_at AS claimed_at, claims.queue_id,
        u.seq, COALESCE(u.deliveries, 1) AS delivery, clock.now, clock.txid, queues.requeue, j.rank, j.key, j.name,
        j.tag, j.reply_to, j.max_deliveries, COALESCE(j.position, j.seq) AS position, j.first_claimed_at,
        CASE WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at,
            claims.deadline + claims.grace_ms * interval '1 ms') END AS expires_at,
        CASE WHEN queues.dead_ttl_ms > 0 THEN clock.now + COALESCE(j.result_ttl_ms,
            queues.dead_ttl_ms) * interval '1 ms' END AS dead_until,
        {REPLY} * (j.reply_to IS NOT NULL)::int + {RESULT_TTL} * (j.result_ttl_ms IS NOT NULL)::int
            + {is_large(j)} + {FAILED|SUSPECT} + {DEAD_LETTER} * (claims.flags & {DEAD_LETTER} <> 0 AND EXISTS (
            SELECT FROM leasequeue_deadletter d WHERE d.seq = u.seq AND NOT d.in_place OFFSET 0))::int
            + {FLOW} * (claims.flags & {FLOW} <> 0 AND EXISTS (SELECT FROM leasequeue_member m
                WHERE m.seq = u.seq OFFSET 0))::int AS flags,
        CASE WHEN NOT s.spent THEN CASE WHEN p.pays THEN {DELAYED} ELSE {READY} END
            WHEN COALESCE(queues.dead_letter, 'self') = 'self' THEN {DEAD} ELSE {MOVE} END AS state
    FROM clock, claims JOIN queues ON queues.id = claims.queue_id
    CROSS JOIN LATERAL unnest(claims.seqs, claims.deliveries) AS u(seq, deliveries)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0 FOR UPDATE) j
    CROSS JOIN LATERAL (SELECT queues.exhaust_at = 'release' AND COALESCE(j.max_deliveries,
        CASE WHEN queues.dead_letter IS NULL THEN 0 ELSE queues.max_deliveries END) BETWEEN 1 AND COALESCE(u.deliveries,
            1) AS spent) s
    {pays(claims.flags, u.seq)}
), returned AS MATERIALIZED (
    SELECT * FROM leases WHERE state <> {MOVE}
), back AS MATERIALIZED (
    SELECT seq, nextval('leasequeue_job_seq_seq') AS position FROM returned
    WHERE state = {READY} AND requeue = 'back' ORDER BY returned.seq
), remaining AS MATERIALIZED (
    SELECT claims.token, claims.part, array_agg(leases.seq) FILTER (WHERE leases.state = {MOVE}) AS seqs,
        array_agg(leases.delivery) FILTER (WHERE leases.state = {MOVE}) AS deliveries
    FROM claims LEFT JOIN leases ON leases.token = claims.token AND leases.part = claims.part
    GROUP BY claims.token, claims.part
), gone AS (
    DELETE FROM leasequeue_claim c USING remaining WHERE c.token = remaining.token AND c.part = remaining.part
        AND remaining.seqs IS NULL
        AND c.token = ANY (ARRAY(SELECT token FROM claims)) RETURNING c.token
), rest AS (
    UPDATE leasequeue_claim c SET seqs = remaining.seqs, deliveries = remaining.deliveries
    FROM remaining WHERE c.token = remaining.token AND c.part = remaining.part
        AND cardinality(remaining.seqs) < cardinality(c.seqs)
        AND c.token = ANY (ARRAY(SELECT token FROM claims)) RETURNING c.token
), noted AS (
    {came_back(returned)}
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT seq, queue_id, now, delivery, node, 'LEASE_EXPIRED',
        'the lease expired: the worker died, hung or lost its database', '', 'lease_expired'
    FROM returned
), forgotten AS (
    {oldest_attempts(returned.delivery > 20)}
), ready AS (
    {into_ready()}
    SELECT returned.queue_id, returned.rank, CASE WHEN back.seq IS NULL THEN {AGAIN} ELSE {FRESH} END,
        COALESCE(back.position, returned.position), returned.seq, returned.delivery,
        returned.flags, returned.now, returned.max_deliveries, returned.expires_at, returned.tag
    FROM returned LEFT JOIN back ON back.seq = returned.seq WHERE returned.state = {READY}
), delayed AS (
    {into_delayed()}
    SELECT seq, queue_id, now, delivery, rank, flags, max_deliveries, expires_at, tag FROM returned
    WHERE state = {DELAYED}
), dead AS (
    INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, expires_at, deliveries, in_place, error_type, error,
        fingerprint)
    SELECT seq, queue_id, now, dead_until, delivery, true, 'LEASE_EXPIRED',
        'the lease expired: the worker died, hung or lost its database', 'lease_expired'
    FROM returned WHERE state = {DEAD}
    {dead_again()}
), deadened AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + n.n
    FROM (SELECT queue_id, count(*) AS n FROM returned WHERE state = {DEAD} GROUP BY queue_id) n WHERE q.id = n.queue_id
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs,
        deliveries, detail)
    SELECT returned.txid, returned.now, returned.queue_id, returned.token, returned.deadline, min(returned.seq),
        max(returned.seq), k.kind, returned.node, returned.name,
        array_agg(returned.seq ORDER BY returned.seq), array_agg(returned.delivery ORDER BY returned.seq),
        CASE WHEN returned.state = {DEAD} THEN
            '{"error_type": "LEASE_EXPIRED", "fingerprint": "lease_expired"}'::jsonb END
    FROM returned, LATERAL (SELECT {event.EXPIRED} AS kind UNION ALL SELECT {event.DEAD_LETTERED}
        WHERE returned.state = {DEAD}) k
    GROUP BY returned.txid, returned.now, returned.queue_id, returned.token, returned.part, returned.deadline, k.kind,
        returned.node, returned.name, returned.state
), wake AS MATERIALIZED (
    SELECT {wake(w.queue_id)} AS sent FROM (SELECT DISTINCT queue_id FROM returned
        WHERE state IN ({READY}, {DELAYED})) w
)
SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM rest) AS seq, NULL::bigint AS queue_id,
    (SELECT CASE WHEN count(*) > (SELECT count(*) FROM claims) THEN %(size)s::int ELSE count(*)::int END
        FROM locked) AS outcome,
    NULL::text AS key, NULL::text AS name, NULL::text AS node, (SELECT count(sent)::int FROM wake) AS deliveries,
    (SELECT {lazily(bool_and(NOT leases_durable))} FROM queues)
UNION ALL
SELECT seq, queue_id, state, key, name, node, delivery,
    CASE WHEN state = {DEAD} AND reply_to IS NOT NULL THEN {tell_callers(leases, {result.FAILED})} END FROM leases
