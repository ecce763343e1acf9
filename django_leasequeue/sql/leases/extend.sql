-- Purpose: set the deadline of held leases to now + lease_ms (never add; may shorten). Where it is not all of a claim's jobs, the
--   claim is split: the others keep their deadline.
-- Parameters: project, queue (null: any), node, tokens (each once); seqs, claims (their tokens); lease_ms (null: each queue's
--   own); now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey; of jobs of workflows leasequeue_member_pkey and leasequeue_workflow_pkey.
-- Pages: 310 + 0.3 a row
-- Returns: seq, deadline, null, seconds until the deadline, whether its workflow is being cancelled.
WITH t AS MATERIALIZED (SELECT pg_current_xact_id()::text::bigint AS txid, {now()} AS now), k AS MATERIALIZED (
    SELECT c.*, t.now + COALESCE(%(lease_ms)s::bigint, q.lease_ms) * interval '1 ms' AS until, t.now, q.leases_durable
    FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q CROSS JOIN t
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE
        AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (q.late_ack = 'accept' OR c.deadline >= (SELECT now FROM t))
    ORDER BY c.token, c.part FOR NO KEY UPDATE OF c
), x AS MATERIALIZED (
    SELECT k.token, k.part, u.seq, u.deliveries, i.seq IS NOT NULL AS wanted
    FROM k CROSS JOIN LATERAL unnest(k.seqs, k.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[])) AS i(seq, claim)
        ON i.seq = u.seq AND i.claim = k.token
), m AS MATERIALIZED (
    SELECT x.token, x.part, array_agg(x.seq) FILTER (WHERE NOT x.wanted) AS left_seqs,
        array_agg(x.deliveries) FILTER (WHERE NOT x.wanted) AS left_deliveries,
        array_agg(x.seq) FILTER (WHERE x.wanted) AS seqs, array_agg(x.deliveries) FILTER (WHERE x.wanted) AS deliveries,
        row_number() OVER (PARTITION BY x.token ORDER BY x.part) AS n
    FROM x GROUP BY x.token, x.part HAVING bool_or(x.wanted)
), moved AS (
    UPDATE leasequeue_claim c SET
        deadline = CASE WHEN m.left_seqs IS NULL THEN k.until ELSE c.deadline END,
        ttl_ms = CASE WHEN m.left_seqs IS NULL THEN COALESCE(%(lease_ms)s::bigint, c.ttl_ms) ELSE c.ttl_ms END,
        seqs = COALESCE(m.left_seqs, c.seqs),
        deliveries = CASE WHEN c.deliveries IS NOT NULL THEN COALESCE(m.left_deliveries, c.deliveries) END
    FROM m JOIN k ON k.token = m.token AND k.part = m.part
    WHERE c.token = m.token AND c.part = m.part AND c.token = ANY (%(tokens)s::bigint[])
), split AS (
    INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, name, connection,
        seqs, deliveries)
    SELECT k.token, m.n + (SELECT max(a.part) FROM leasequeue_claim a WHERE a.token = k.token), k.queue_id, k.until, k.created_at,
        COALESCE(%(lease_ms)s::bigint, k.ttl_ms), k.grace_ms, k.flags, k.node, k.name, k.connection, m.seqs,
        CASE WHEN k.deliveries IS NOT NULL THEN m.deliveries END
    FROM m JOIN k ON k.token = m.token AND k.part = m.part WHERE m.left_seqs IS NOT NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs, deliveries)
    SELECT (SELECT txid FROM t), k.now, k.queue_id, k.token, k.until, (SELECT min(s) FROM unnest(m.seqs) s),
        (SELECT max(s) FROM unnest(m.seqs) s), 3, k.node, k.name, m.seqs,
        CASE WHEN k.deliveries IS NOT NULL THEN m.deliveries END
    FROM m JOIN k ON k.token = m.token AND k.part = m.part
)
SELECT x.seq, k.until, (SELECT {lazily(bool_and(NOT leases_durable))} FROM k), extract(epoch FROM k.until - k.now)::float8,
    k.flags & 128 <> 0 AND EXISTS (
        SELECT FROM (SELECT m.workflow FROM leasequeue_member m WHERE m.seq = x.seq OFFSET 0) m CROSS JOIN LATERAL (
            SELECT FROM leasequeue_workflow w WHERE w.id = m.workflow AND w.state = 3 AND w.ended_at IS NULL OFFSET 0) w)
FROM x JOIN k ON k.token = x.token AND k.part = x.part WHERE x.wanted
