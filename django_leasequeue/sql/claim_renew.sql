-- Purpose: renew a live claim: new length, its age starts again, its jobs' messages live on for the grace at least.
-- Parameters: queue (id), claim, ttl_ms, grace_ms (null: as it was), now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey.
-- Returns: the seqs renewed.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), c AS MATERIALIZED (
    SELECT c.*, COALESCE(%(grace_ms)s::bigint, c.grace_ms) AS grace FROM leasequeue_claim c
    WHERE c.id = %(claim)s AND c.queue_id + 0 = %(queue)s FOR UPDATE
), x AS (
    UPDATE leasequeue_job j SET deadline = t.now + %(ttl_ms)s::bigint * interval '1 ms',
        expires_at = GREATEST(j.expires_at, CASE WHEN j.expires_at IS NOT NULL
            THEN t.now + (%(ttl_ms)s::bigint + c.grace) * interval '1 ms' END)
    FROM c, t
    WHERE j.seq = ANY (ARRAY(SELECT unnest(seqs) FROM c)) AND j.claim = c.id AND j.state = 2 AND j.deadline >= t.now
    RETURNING j.seq, j.queue_id, j.claim, j.deadline, j.node, j.deliveries, j.created_at, t.now
), renewed AS (
    UPDATE leasequeue_claim k SET created_at = t.now, ttl_ms = %(ttl_ms)s::bigint, grace_ms = c.grace,
        -- A job of the claim that has run out already, by another door, is not renewed: the sweep still has to find it.
        deadline = LEAST(t.now + %(ttl_ms)s::bigint * interval '1 ms', (SELECT min(j.deadline) FROM leasequeue_job j
            WHERE j.seq = ANY (ARRAY(SELECT unnest(seqs) FROM c)) AND j.claim = k.id AND j.state = 2 AND j.deadline < t.now))
    FROM c, t WHERE k.id = c.id AND EXISTS (SELECT FROM x)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at, deadline)
    SELECT (SELECT pg_current_xact_id()::text::bigint), x.now, x.queue_id, x.seq, 3, x.node, x.deliveries, x.claim,
        x.created_at, x.deadline
    FROM x
)
SELECT x.seq FROM x
