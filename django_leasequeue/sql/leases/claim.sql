-- Purpose: lease up to n fresh jobs of one queue, in order of rank and position, to one node. Their rows in ready go, their numbers
--   stand in the claim; the jobs themselves are only read. For queues where nothing came back to an old place (claim_look.sql);
--   claim_mixed.sql is for the others.
-- Parameters: queue (id), ranks (in order), lows (lowest position worth reading of each), node, size, lease_ms (null: the queue's),
--   grace_ms, connection (null or a stream's mark),
--   slots (the caller has locked and counted the leases of a queue with concurrency), now, autocommit.
-- Index: leasequeue_ready_pkey from the floors on, leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 50 + 12 a row
-- Returns: on every row whether nothing was taken because a job stands in the way that claim_mixed.sql has to look at; then the job,
--   or nulls.
WITH q AS MATERIALIZED (
    SELECT q.id, q.name, q.max_deliveries, COALESCE(%(lease_ms)s::bigint, q.lease_ms) AS ttl,
        {now()} AS now,
        CASE WHEN q.exhaust_at = 'claim' THEN CASE WHEN q.dead_letter IS NULL THEN 0 ELSE q.max_deliveries END END AS max,
        {lazily(NOT q.leases_durable)}
    FROM leasequeue_queue q WHERE q.id = %(queue)s::bigint AND q.type = 'queue' AND q.paused_at IS NULL AND (q.concurrency = 0 OR %(slots)s::bool)
), p AS MATERIALIZED (
    SELECT r.* FROM q, unnest(%(ranks)s::smallint[], %(lows)s::bigint[]) AS f(rank, low) CROSS JOIN LATERAL (
        SELECT r.ctid AS tid, r.flags & 96 <> 0 OR q.max IS NOT NULL AND COALESCE(r.max_deliveries, q.max) BETWEEN 1 AND r.deliveries AS odd
        FROM leasequeue_ready r
        WHERE r.queue_id = %(queue)s::bigint AND r.rank = f.rank AND r.lane = 2 AND r.position >= f.low
            AND (r.expires_at IS NULL OR r.expires_at > q.now)
        ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) r
    LIMIT %(size)s::int
), taken AS (
    DELETE FROM leasequeue_ready r
    WHERE r.ctid = ANY (ARRAY(SELECT tid FROM p WHERE NOT EXISTS (SELECT FROM p WHERE odd)))
    RETURNING r.seq, r.rank, r.position, r.deliveries + 1 AS deliveries, r.flags, r.ready_at, r.max_deliveries
), l AS MATERIALIZED (
    SELECT r.*, j.created_at, j.key, j.name, j.tag, j.data, j.meta, j.body, j.reply_to, j.first_claimed_at, j.progress
    FROM taken r CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = r.seq OFFSET 0) j
), c AS MATERIALIZED (
    SELECT (floor(random() * 1073741824)::bigint << 33) + (nextval('leasequeue_claim_token_seq') << 2)
            + CASE WHEN x.flags & 127 = 0 THEN 0 WHEN x.flags & 127 = 1 THEN 2 ELSE 1 END AS token,
        x.*, q.now + q.ttl * interval '1 ms' AS deadline
    FROM q, (SELECT (bit_or(l.flags) & 143)::int
                + CASE WHEN min(l.name) IS NOT DISTINCT FROM max(l.name) AND count(l.name) IN (0, count(*)) THEN 0 ELSE 16 END | CASE WHEN %(slots)s::bool THEN 256 ELSE 0 END AS flags,
            min(l.name) AS name, array_agg(l.seq) AS seqs, CASE WHEN max(l.deliveries) > 1 THEN array_agg(l.deliveries) END AS deliveries
        FROM l) x
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
    SELECT (SELECT pg_current_xact_id()::text::bigint), q.now, q.id, c.token, c.deadline, g.low, g.high, 2, %(node)s::text, g.name, g.seqs,
        g.deliveries, g.waited
    FROM q, c, (SELECT l.name, min(l.seq) AS low, max(l.seq) AS high, array_agg(l.seq) AS seqs,
            CASE WHEN max(l.deliveries) > 1 THEN array_agg(l.deliveries) END AS deliveries,
            array_agg(LEAST(GREATEST(date_part('epoch', (SELECT now FROM q) - l.ready_at) * 1000, 0), 2073600000)::int) AS waited
        FROM l GROUP BY l.name) g
)
SELECT EXISTS (SELECT FROM p WHERE odd), l.seq, q.id, q.name, c.token, date_part('epoch', c.deadline), date_part('epoch', l.created_at), date_part('epoch', q.now), l.deliveries,
    COALESCE(l.max_deliveries, q.max_deliveries), l.rank, l.key, l.name, l.tag, l.data::text, l.meta::text, l.body, l.reply_to,
    CASE WHEN l.flags & 8 <> 0 THEN leasequeue_errors(l.seq)::text END, date_part('epoch', COALESCE(l.first_claimed_at, q.now)), l.progress::text,
    l.position, l.flags | CASE WHEN %(slots)s::bool THEN 128 ELSE 0 END
FROM q LEFT JOIN (c CROSS JOIN l) ON true ORDER BY l.rank, l.position
