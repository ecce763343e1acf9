-- Purpose: lease ready jobs of one queue to several claimers at once, dealt like cards: round-robin in order of arrival, each
--   up to its size. Otherwise as claim.
-- Parameters: project, queue (name); arrays, one entry a claimer: nodes, sizes, leases (ms, null: the queue's),
--   connections (streams' marks, or null), shown (whether its jobs are wanted in the answer); most (jobs of the whole
--   deal), bytes (of a claimer's payloads together; its first job always fits), all_bytes (of the whole deal), force (deal
--   although expired leases or due jobs wait), now, autocommit.
-- Index: leasequeue_queue_name, leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey, the fresh lane from the
--   floor on; leasequeue_job_pkey; probes as claim_look.
-- Pages: 20 + 11 a row
-- Returns: on every row due and spent as claim, how many jobs were dealt, each claimer's claim (an array, null: nothing);
--   then the claimer's place, its job, or nulls.
WITH t AS MATERIALIZED (SELECT {now()} AS now), q AS MATERIALIZED (
    SELECT * FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND type = 'queue' AND paused_at IS NULL
), f AS MATERIALIZED (
    SELECT q.id, k.rank, {floor(q.id, 0, k.rank)} AS low,
        CASE WHEN q.exhaust_at = 'claim' THEN CASE WHEN q.dead_letter IS NULL THEN 0 ELSE q.max_deliveries END END AS max
    FROM q CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id) k
    ORDER BY k.rank
), due AS MATERIALIZED (
    SELECT
        (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_claim c WHERE c.queue_id = q.id AND c.deadline < (SELECT now FROM t)
            AND c.deadline >= 'epoch'::timestamptz + interval '1 us' * {floor(q.id, 2, 0)}
            ORDER BY c.deadline LIMIT 1) x))::int
        + 2 * (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_delayed d WHERE d.queue_id = q.id
            AND d.available_at <= (SELECT now FROM t)
            AND d.available_at >= 'epoch'::timestamptz + interval '1 us' * {floor(q.id, 1, 0)}
            ORDER BY d.available_at LIMIT 1) x))::int
        + 4 * (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_ready r WHERE r.queue_id = q.id
            AND r.expires_at IS NOT NULL AND r.expires_at <= (SELECT now FROM t) ORDER BY r.expires_at LIMIT 1) x)
            OR EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_deadletter x WHERE q.dead_ttl_ms > 0 AND x.queue_id = q.id
            AND x.in_place AND x.expires_at <= (SELECT now FROM t) ORDER BY x.expires_at LIMIT 1) x))::int
        + 8 * (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_flowturn u WHERE u.queue_id = q.id
            AND u.at <= (SELECT now FROM t) ORDER BY u.at LIMIT 1) x))::int
        AS flags,
        {lazily(NOT EXISTS (SELECT FROM q WHERE leases_durable))} AS relaxed
), w AS MATERIALIZED (
    SELECT * FROM ROWS FROM (
        unnest(%(nodes)s::text[]), unnest(%(sizes)s::int[]), unnest(%(leases)s::bigint[]),
        unnest(%(connections)s::text[]), unnest(%(shown)s::bool[])
    ) WITH ORDINALITY AS u(node, size, lease, connection, shown, n)
), z AS MATERIALIZED (
    SELECT CASE WHEN %(force)s::bool OR due.flags = 0 THEN LEAST((SELECT sum(size) FROM w), %(most)s::int) ELSE 0 END AS size
    FROM due
), p AS MATERIALIZED (
    SELECT r.*, r.max IS NOT NULL AND COALESCE(r.max_deliveries, r.max) BETWEEN 1 AND r.deliveries AS spent
    FROM (
        SELECT f.max, r.* FROM f CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT r.ctid AS tid, r.seq, r.rank, r.position, r.deliveries, r.flags, r.ready_at, r.max_deliveries
                FROM leasequeue_ready r
                WHERE r.queue_id = f.id AND r.rank = f.rank AND r.lane = 1
                    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM t))
                ORDER BY r.position LIMIT (SELECT size FROM z) FOR UPDATE SKIP LOCKED) a
            UNION ALL
            SELECT * FROM (
                SELECT r.ctid AS tid, r.seq, r.rank, r.position, r.deliveries, r.flags, r.ready_at, r.max_deliveries
                FROM leasequeue_ready r
                WHERE r.queue_id = f.id AND r.rank = f.rank AND r.lane = 2 AND r.position >= f.low
                    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM t))
                ORDER BY r.position LIMIT (SELECT size FROM z) FOR UPDATE SKIP LOCKED) b
            ORDER BY position LIMIT (SELECT size FROM z)) r
        LIMIT (SELECT size FROM z)
    ) r
), good AS MATERIALIZED (
    SELECT *, row_number() OVER (ORDER BY rank, position) AS k FROM p WHERE NOT spent
), sorted AS (
    SELECT size, row_number() OVER o AS i, sum(size) OVER o - size AS before, count(*) OVER () AS n FROM w
    WINDOW o AS (ORDER BY size ROWS UNBOUNDED PRECEDING)
), level AS MATERIALIZED (
    SELECT COALESCE((SELECT x.l FROM (
        SELECT s.i, s.size, ceil((g.n - s.before)::numeric / (s.n - s.i + 1))::int AS l
        FROM sorted s, (SELECT count(*) AS n FROM good) g) x WHERE x.l <= x.size ORDER BY x.i LIMIT 1),
        (SELECT max(size) FROM w)) AS l
), slots AS (
    SELECT row_number() OVER (ORDER BY r.r, w.n) AS k, w.n
    FROM w, level, LATERAL generate_series(1, LEAST(w.size, level.l)) AS r(r)
), g AS MATERIALIZED (
    SELECT * FROM (
        SELECT good.*, s.n, j.created_at, j.key, j.name, j.tag, j.data, j.meta, j.body, j.reply_to, j.first_claimed_at,
            j.progress, sum(j.bytes) OVER (PARTITION BY s.n ORDER BY good.k) AS bytes,
            sum(j.bytes) OVER (ORDER BY good.k) AS all_bytes, row_number() OVER (PARTITION BY s.n ORDER BY good.k) AS first
        FROM good JOIN slots s ON s.k = good.k CROSS JOIN LATERAL (
            SELECT j.created_at, j.key, j.name, j.tag, j.data, j.meta, j.body, j.reply_to, j.first_claimed_at, j.progress,
                {bytes(j)} AS bytes
            FROM leasequeue_job j WHERE j.seq = good.seq OFFSET 0) j) g
    WHERE (g.bytes <= %(bytes)s::bigint OR g.first = 1) AND (g.all_bytes <= %(all_bytes)s::bigint OR g.k = 1)
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT tid FROM g))
), c AS MATERIALIZED (
    SELECT {token()} AS token,
        w.n, w.node, w.connection, w.shown, q.id AS queue_id, q.name AS queue, q.max_deliveries, x.flags, x.seqs, x.deliveries,
        CASE WHEN x.flags & 16 = 0 THEN x.name END AS name, t.now, COALESCE(w.lease, q.lease_ms) AS ttl,
        t.now + COALESCE(w.lease, q.lease_ms) * interval '1 ms' AS deadline
    FROM (SELECT g.n, (bit_or(g.flags) & 175)::int
                + CASE WHEN count(g.name) IN (0, count(*)) AND min(g.name) IS NOT DISTINCT FROM max(g.name) THEN 0 ELSE 16 END AS flags,
            min(g.name) AS name, array_agg(g.seq ORDER BY g.k) AS seqs,
            CASE WHEN max(g.deliveries) > 0 THEN array_agg(g.deliveries + 1 ORDER BY g.k) END AS deliveries
        FROM g GROUP BY g.n) x
    JOIN w ON w.n = x.n, q, t
), made AS (
    INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, name, connection,
        seqs, deliveries)
    SELECT c.token, 0, c.queue_id, c.deadline, c.now, c.ttl, 0, c.flags, c.node, c.name, c.connection, c.seqs, c.deliveries FROM c
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs, deliveries,
        waited)
    SELECT (SELECT pg_current_xact_id()::text::bigint), c.now, c.queue_id, c.token, c.deadline, min(g.seq), max(g.seq), 2, c.node,
        g.name, array_agg(g.seq ORDER BY g.k),
        CASE WHEN max(g.deliveries) > 0 THEN array_agg(g.deliveries + 1 ORDER BY g.k) END,
        array_agg(LEAST(GREATEST(extract(epoch FROM c.now - g.ready_at) * 1000, 0), 2147483647)::int ORDER BY g.k)
    FROM g JOIN c ON c.n = g.n
    GROUP BY c.now, c.queue_id, c.token, c.deadline, c.node, g.name
)
SELECT due.flags, (SELECT count(*) FROM p WHERE spent), (SELECT count(*) FROM g),
    ARRAY(SELECT c.token FROM w LEFT JOIN c ON c.n = w.n ORDER BY w.n), c.n::int,
    g.seq, c.queue_id, c.queue, c.token, date_part('epoch', c.deadline), date_part('epoch', g.created_at), date_part('epoch', c.now), g.deliveries + 1,
    COALESCE(g.max_deliveries, c.max_deliveries), g.rank, g.key, g.name, g.tag, g.data::text, g.meta::text, g.body,
    g.reply_to, CASE WHEN g.flags & 8 <> 0 THEN leasequeue_errors(g.seq)::text END, date_part('epoch', COALESCE(g.first_claimed_at, c.now)),
    g.progress::text, g.position, g.flags::int
FROM due LEFT JOIN (g JOIN c ON c.n = g.n AND c.shown) ON true ORDER BY c.n, g.k
