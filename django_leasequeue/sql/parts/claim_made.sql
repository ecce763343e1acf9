-- claim_made(jobs, deliveries): claim, which has these jobs of the queue, and its events.
claim AS MATERIALIZED (
    SELECT {token(made_of.flags)} AS token, made_of.*, queue.now + queue.ttl * interval '1 ms' AS deadline
    FROM queue, (SELECT {claim_flags({jobs})}
                | CASE WHEN %(slots)s::bool THEN {RATED} ELSE 0 END AS flags,
            min({jobs}.name) AS name, array_agg({jobs}.seq) AS seqs,
            CASE WHEN max({jobs}.{deliveries}) > 1 THEN array_agg({jobs}.{deliveries}) END AS deliveries
        FROM {jobs}) made_of
    WHERE made_of.seqs IS NOT NULL
), made AS (
    INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, name,
        connection, seqs, deliveries)
    SELECT claim.token, 0, queue.id, claim.deadline, queue.now, queue.ttl, %(grace_ms)s::bigint, claim.flags,
        %(node)s::text,
        CASE WHEN claim.flags & {MIXED} = 0 THEN claim.name END, %(connection)s::text, claim.seqs, claim.deliveries
    FROM queue, claim
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs,
        deliveries, waited)
    SELECT (SELECT {txid()}), queue.now, queue.id, claim.token, claim.deadline, by_name.low, by_name.high,
        {event.CLAIMED}, %(node)s::text, by_name.name, by_name.seqs,
        by_name.deliveries, by_name.waited
    FROM queue, claim, (SELECT {jobs}.name, min({jobs}.seq) AS low, max({jobs}.seq) AS high,
        array_agg({jobs}.seq) AS seqs,
            CASE WHEN max({jobs}.{deliveries}) > 1 THEN array_agg({jobs}.{deliveries}) END AS deliveries,
            array_agg({waited((SELECT now FROM queue), {jobs}.ready_at)}) AS waited
        FROM {jobs} GROUP BY {jobs}.name) by_name
)
