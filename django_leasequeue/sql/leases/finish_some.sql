-- Purpose: complete jobs of claims without unusual flags: finish.sql for the common case.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length or empty: seqs, claims
--   (their tokens), results, rans (ms); now, autocommit, alone.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_floor_place; inserts.
-- Pages: 180 + 10 a row
-- Returns: one row: the seqs that were ended, null for none; about those that are missing finish.sql knows more.
WITH claims AS MATERIALIZED (
    SELECT c.token, c.part, c.queue_id, c.created_at, c.connection, c.flags, c.name, c.seqs, c.deliveries, n.now,
        q.result_ttl_ms AS keep, n.now + q.result_ttl_ms * interval '1 ms' AS expires, q.durability
    FROM (SELECT {now()} AS now OFFSET 0) n, leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND c.flags & {UNUSUAL|REPLY} = 0
        AND {may_settle(n.now)}
    ORDER BY c.token, c.part FOR NO KEY UPDATE OF c
), leases AS MATERIALIZED (
    SELECT claims.token, claims.part, u.seq, u.deliveries, i.seq IS NOT NULL AS done, i.result, i.ran
    FROM claims CROSS JOIN LATERAL unnest(claims.seqs, claims.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(results)s::text[]),
        unnest(%(rans)s::int[]))
        AS i(seq, claim, result, ran) ON i.seq = u.seq AND i.claim = claims.token
), done AS (
    SELECT leases.token, claims.queue_id, claims.created_at, claims.name, claims.now, claims.keep, claims.expires,
        leases.seq, COALESCE(leases.deliveries, 1) AS deliveries,
        leases.result, leases.ran
    FROM leases JOIN claims ON claims.token = leases.token AND claims.part = leases.part WHERE leases.done
), remaining AS MATERIALIZED (
    SELECT token, part, array_agg(seq) FILTER (WHERE NOT done) AS seqs,
        array_agg(deliveries) FILTER (WHERE NOT done) AS deliveries
    FROM leases GROUP BY token, part HAVING bool_or(done)
), {shrink(%(tokens)s::bigint[])}, kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state,
        node, result)
    SELECT seq, queue_id, token, created_at, now, expires, deliveries, {result.COMPLETED}, %(node)s::text,
        result::json
    FROM done WHERE keep > 0
), dropped AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM done WHERE keep = 0)) AND {removing()}
), head AS (
    {note_highest(SELECT done.queue_id, done.now, max(done.seq) AS high FROM done WHERE done.keep = 0
        GROUP BY done.queue_id, done.now)}
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs,
        deliveries, ran)
    SELECT {txid()}, now, queue_id, token, min(seq), max(seq), {event.ACKED}, %(node)s::text,
        name, array_agg(seq), CASE WHEN max(deliveries) > 1 THEN array_agg(deliveries) END,
        CASE WHEN count(ran) > 0 THEN array_agg(ran) END
    FROM done GROUP BY now, queue_id, token, name
)
SELECT (SELECT array_agg(seq) FROM done), {tell_streams()}, (SELECT {lazily(bool_and(claims.durability <> 'fsync'))}
    FROM claims)
