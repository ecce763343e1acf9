-- Purpose: set the deadline of held leases to now + lease_ms (never add; may shorten). A message with a TTL lives at least
--   until then, and for its claim's grace longer.
-- Parameters: project, queue (null: any), node; seqs, claims (tokens, empty: unfenced); lease_ms (null: each queue's own);
--   now, autocommit.
-- Index: leasequeue_job_pkey, leasequeue_claim_pkey. The claim's row keeps an earlier deadline: the sweep moves it on.
-- Returns: seq, deadline.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), i AS MATERIALIZED (
    SELECT * FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[])) AS u(i_seq, token)
), x AS (
    UPDATE leasequeue_job j SET deadline = t.now + COALESCE(%(lease_ms)s::bigint, q.lease_ms) * interval '1 ms',
        expires_at = CASE WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at, t.now
            + (COALESCE(%(lease_ms)s::bigint, q.lease_ms) + COALESCE((SELECT k.grace_ms FROM leasequeue_claim k
                WHERE k.id = j.claim), 0)) * interval '1 ms') END
    FROM i, leasequeue_queue q, t
    WHERE j.seq = i.i_seq AND j.state = 2 AND q.id = j.queue_id AND q.project = %(project)s
        AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text) AND j.node = %(node)s::text AND (i.token IS NULL OR j.claim = i.token)
        AND (q.late_ack = 'accept' OR j.deadline >= t.now)
    RETURNING j.seq, j.queue_id, j.claim, j.deadline, j.node, j.deliveries, j.created_at, t.now, q.leases_durable
), claims AS (
    UPDATE leasequeue_claim c SET deadline = m.deadline
    FROM (SELECT claim, min(deadline) AS deadline FROM x GROUP BY claim) m
    WHERE c.id = m.claim AND c.deadline > m.deadline
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at, deadline)
    SELECT (SELECT pg_current_xact_id()::text::bigint), x.now, x.queue_id, x.seq, 3, x.node, x.deliveries, x.claim,
        x.created_at, x.deadline
    FROM x
)
SELECT x.seq, x.deadline, (SELECT CASE WHEN %(autocommit)s::bool AND bool_and(NOT leases_durable)
    THEN set_config('synchronous_commit', 'off', true) END FROM x)
FROM x
