-- Purpose: set the deadline of held leases to now + lease_ms (never add; may shorten). Where it is not all of a claim's
--   jobs, the claim is split: the others keep their deadline.
-- Parameters: project, queue (null: any), node, tokens (each once); seqs, claims (their tokens); lease_ms (null: each
--   queue's own), waits (for who has a claim locked; else such claims are left out); now, autocommit, alone.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey; of jobs of workflows leasequeue_member_pkey and
--   leasequeue_workflow_pkey.
-- Pages: 310 + 0.3 a row
-- Returns: seq, deadline, null, seconds until the deadline, whether its workflow is being cancelled.
WITH clock AS MATERIALIZED (SELECT {txid()} AS txid, {now()} AS now), claims AS MATERIALIZED (
    SELECT c.*, clock.now + COALESCE(%(lease_ms)s::bigint, q.lease_ms) * interval '1 ms' AS until, clock.now,
        q.leases_durable
    FROM (
        SELECT * FROM (
            SELECT * FROM leasequeue_claim c
            WHERE %(waits)s::bool AND c.token = ANY (%(tokens)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE
            ORDER BY c.token, c.part FOR NO KEY UPDATE) a
        UNION ALL
        SELECT * FROM (
            SELECT * FROM leasequeue_claim c
            WHERE NOT %(waits)s::bool AND c.token = ANY (%(tokens)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE
            ORDER BY c.token, c.part FOR NO KEY UPDATE SKIP LOCKED) b
    ) c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q CROSS JOIN clock
    WHERE {may_settle((SELECT now FROM clock))}
), leases AS MATERIALIZED (
    SELECT claims.token, claims.part, u.seq, u.deliveries, i.seq IS NOT NULL AS wanted
    FROM claims CROSS JOIN LATERAL unnest(claims.seqs, claims.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[])) AS i(seq, claim)
        ON i.seq = u.seq AND i.claim = claims.token
), changed AS MATERIALIZED (
    SELECT token, part, array_agg(seq) FILTER (WHERE NOT wanted) AS left_seqs,
        array_agg(deliveries) FILTER (WHERE NOT wanted) AS left_deliveries,
        array_agg(seq) FILTER (WHERE wanted) AS seqs, array_agg(deliveries) FILTER (WHERE wanted) AS deliveries
    FROM leases GROUP BY token, part HAVING bool_or(wanted)
), moved AS (
    UPDATE leasequeue_claim c SET
        deadline = CASE WHEN changed.left_seqs IS NULL THEN claims.until ELSE c.deadline END,
        ttl_ms = CASE WHEN changed.left_seqs IS NULL THEN COALESCE(%(lease_ms)s::bigint, c.ttl_ms) ELSE c.ttl_ms END,
        seqs = COALESCE(changed.left_seqs, c.seqs),
        deliveries = CASE WHEN c.deliveries IS NOT NULL THEN COALESCE(changed.left_deliveries, c.deliveries) END
    FROM changed JOIN claims ON claims.token = changed.token AND claims.part = changed.part
    WHERE c.token = changed.token AND c.part = changed.part AND c.token = ANY (%(tokens)s::bigint[])
), split AS (
    INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, name,
        connection, seqs, deliveries)
    -- A part that another extension has just made is not seen: the number is new wherever it is drawn.
    SELECT claims.token, nextval('leasequeue_claim_token_seq'), claims.queue_id, claims.until, claims.created_at,
        COALESCE(%(lease_ms)s::bigint, claims.ttl_ms), claims.grace_ms, claims.flags, claims.node, claims.name,
        claims.connection, changed.seqs, CASE WHEN claims.deliveries IS NOT NULL THEN changed.deliveries END
    FROM changed JOIN claims ON claims.token = changed.token AND claims.part = changed.part
    WHERE changed.left_seqs IS NOT NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs,
        deliveries)
    SELECT (SELECT txid FROM clock), claims.now, claims.queue_id, claims.token, claims.until,
        (SELECT min(s) FROM unnest(changed.seqs) s), (SELECT max(s) FROM unnest(changed.seqs) s), {event.EXTENDED},
        claims.node, claims.name, changed.seqs, CASE WHEN claims.deliveries IS NOT NULL THEN changed.deliveries END
    FROM changed JOIN claims ON claims.token = changed.token AND claims.part = changed.part
)
SELECT leases.seq, claims.until, (SELECT {lazily(bool_and(NOT leases_durable))} FROM claims),
    extract(epoch FROM claims.until - claims.now)::float8,
    claims.flags & {FLOW} <> 0 AND {is_cancelled(leases.seq)}
FROM leases JOIN claims ON claims.token = leases.token AND claims.part = leases.part WHERE leases.wanted
