-- Purpose: renew a live claim: new length, its age starts again; its messages live on for the grace at least. A part of
--   it that has run out already stays for the sweep.
-- Parameters: queue (id), claim (token), ttl_ms, grace_ms (null: as it was), now, autocommit.
-- Index: leasequeue_claim_pkey.
-- Pages: 70
WITH clock AS MATERIALIZED (SELECT {now()} AS now), claims AS (
    UPDATE leasequeue_claim c SET deadline = clock.now + %(ttl_ms)s::bigint * interval '1 ms', created_at = clock.now,
        ttl_ms = %(ttl_ms)s::bigint, grace_ms = COALESCE(%(grace_ms)s::bigint, c.grace_ms)
    FROM clock
    WHERE c.token = %(claim)s::bigint AND c.queue_id + 0 = %(queue)s::bigint AND c.deadline >= clock.now
    RETURNING c.queue_id, c.token, c.part, c.deadline, c.node, c.name, c.seqs, c.deliveries, c.created_at
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs,
        deliveries)
    SELECT (SELECT {txid()}), claims.created_at, claims.queue_id, claims.token,
        claims.deadline, (SELECT min(s) FROM unnest(claims.seqs) AS s), (SELECT max(s) FROM unnest(claims.seqs) AS s),
        {event.EXTENDED}, claims.node, claims.name, claims.seqs, claims.deliveries
    FROM claims
)
SELECT COALESCE(sum(cardinality(seqs)), 0)::int FROM claims
