-- claim_made(jobs, flags, deliveries): c, the claim of the queue q with these jobs, and its events. A claim has these flags of its jobs.
c AS MATERIALIZED (
    SELECT {token()} AS token, x.*, q.now + q.ttl * interval '1 ms' AS deadline
    FROM q, (SELECT (bit_or({jobs}.flags) & {flags})::int
                + CASE WHEN min({jobs}.name) IS NOT DISTINCT FROM max({jobs}.name) AND count({jobs}.name) IN (0, count(*)) THEN 0 ELSE 16 END
                | CASE WHEN %(slots)s::bool THEN 256 ELSE 0 END AS flags,
            min({jobs}.name) AS name, array_agg({jobs}.seq) AS seqs,
            CASE WHEN max({jobs}.{deliveries}) > 1 THEN array_agg({jobs}.{deliveries}) END AS deliveries
        FROM {jobs}) x
    WHERE x.seqs IS NOT NULL
), made AS (
    INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, name, connection,
        seqs, deliveries)
    SELECT c.token, 0, q.id, c.deadline, q.now, q.ttl, %(grace_ms)s::bigint, c.flags, %(node)s::text,
        CASE WHEN c.flags & 16 = 0 THEN c.name END, %(connection)s::text, c.seqs, c.deliveries
    FROM q, c
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs, deliveries,
        waited)
    SELECT (SELECT pg_current_xact_id()::text::bigint), q.now, q.id, c.token, c.deadline, x.low, x.high, 2, %(node)s::text, x.name, x.seqs,
        x.deliveries, x.waited
    FROM q, c, (SELECT {jobs}.name, min({jobs}.seq) AS low, max({jobs}.seq) AS high, array_agg({jobs}.seq) AS seqs,
            CASE WHEN max({jobs}.{deliveries}) > 1 THEN array_agg({jobs}.{deliveries}) END AS deliveries,
            array_agg(LEAST(GREATEST(date_part('epoch', (SELECT now FROM q) - {jobs}.ready_at) * 1000, 0), 2073600000)::int) AS waited
        FROM {jobs} GROUP BY {jobs}.name) x
)
