-- Purpose: lease ready jobs of one queue to several claimers at once, dealt like cards: round-robin in order of
--   arrival, each up to its size. Otherwise as claim.
-- Parameters: project, queue (name); arrays, one entry a claimer: nodes, sizes, leases (ms, null: the queue's),
--   connections (streams' marks, or null), shown (whether its jobs are wanted in the answer); most (jobs of the whole
--   deal), bytes (of a claimer's payloads together; its first job always fits), all_bytes (of the whole deal), force
--   (deal although expired leases or due jobs wait), now, autocommit, alone.
-- Index: leasequeue_queue_name, leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey, the fresh lane
--   from the floor on; leasequeue_job_pkey; probes as claim_look.
-- Pages: 20 + 11 a row
-- Returns: on every row due and spent as claim, how many jobs were dealt, each claimer's claim (an array, null:
--   nothing); then the claimer's place, its job, or nulls.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), queue AS MATERIALIZED (
    SELECT * FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND type = 'queue' AND paused_at IS NULL
), ranks AS MATERIALIZED (
    SELECT queue.id, k.rank, {floor(queue.id, {floor.READY}, k.rank)} AS low,
        CASE WHEN queue.exhaust_at = 'claim' THEN CASE WHEN queue.dead_letter IS NULL THEN 0
            ELSE queue.max_deliveries END END AS max
    FROM queue CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = queue.id) k
    ORDER BY k.rank
), due AS MATERIALIZED (
    SELECT {due.LEASES} * (EXISTS (SELECT FROM queue, LATERAL (SELECT FROM leasequeue_claim c
                WHERE c.queue_id = queue.id AND c.deadline < (SELECT now FROM clock)
                AND c.deadline >= {since(queue.id, {floor.CLAIM})}
                ORDER BY c.deadline LIMIT 1) x))::int
            + {due.DELAYED} * (EXISTS (SELECT FROM queue, LATERAL (SELECT FROM leasequeue_delayed d
                WHERE d.queue_id = queue.id
                AND d.available_at <= (SELECT now FROM clock)
                AND d.available_at >= {since(queue.id, {floor.DELAYED})}
                ORDER BY d.available_at LIMIT 1) x))::int
            + {due.EXPIRED} * (EXISTS (SELECT FROM queue, LATERAL (SELECT FROM leasequeue_ready r
                WHERE r.queue_id = queue.id
                AND r.expires_at IS NOT NULL AND r.expires_at <= (SELECT now
            FROM clock) ORDER BY r.expires_at LIMIT 1) x)
                OR EXISTS (SELECT FROM queue, LATERAL (SELECT FROM leasequeue_deadletter x
                    WHERE queue.dead_ttl_ms > 0 AND x.queue_id = queue.id
                AND x.in_place AND x.expires_at <= (SELECT now FROM clock) ORDER BY x.expires_at LIMIT 1) x))::int
            + {due.TURNS} * (EXISTS (SELECT FROM queue, LATERAL (SELECT FROM leasequeue_flowturn u
                WHERE u.queue_id = queue.id
                AND u.at <= (SELECT now FROM clock) ORDER BY u.at LIMIT 1) x))::int
            AS flags,
        {lazily(NOT EXISTS (SELECT FROM queue WHERE leases_durable))} AS relaxed
), claimers AS MATERIALIZED (
    SELECT * FROM ROWS FROM (
        unnest(%(nodes)s::text[]), unnest(%(sizes)s::int[]), unnest(%(leases)s::bigint[]),
        unnest(%(connections)s::text[]), unnest(%(shown)s::bool[])
    ) WITH ORDINALITY AS u(node, size, lease, connection, shown, n)
), room AS MATERIALIZED (
    SELECT CASE WHEN %(force)s::bool OR due.flags = 0 THEN LEAST((SELECT sum(size) FROM claimers), %(most)s::int)
        ELSE 0 END AS size
    FROM due
), picked AS MATERIALIZED (
    SELECT r.*, r.max IS NOT NULL AND COALESCE(r.max_deliveries, r.max) BETWEEN 1 AND r.deliveries AS spent
    FROM (
        SELECT ranks.max, r.* FROM ranks CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT r.ctid AS tid, r.seq, r.rank, r.position, r.deliveries, r.flags, r.ready_at, r.max_deliveries
                FROM leasequeue_ready r
                WHERE r.queue_id = ranks.id AND r.rank = ranks.rank AND r.lane = {AGAIN}
                    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM clock))
                ORDER BY r.position LIMIT (SELECT size FROM room) FOR UPDATE SKIP LOCKED) a
            UNION ALL
            SELECT * FROM (
                SELECT r.ctid AS tid, r.seq, r.rank, r.position, r.deliveries, r.flags, r.ready_at, r.max_deliveries
                FROM leasequeue_ready r
                WHERE r.queue_id = ranks.id AND r.rank = ranks.rank AND r.lane = {FRESH} AND r.position >= ranks.low
                    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM clock))
                ORDER BY r.position LIMIT (SELECT size FROM room) FOR UPDATE SKIP LOCKED) b
            ORDER BY position LIMIT (SELECT size FROM room)) r
        LIMIT (SELECT size FROM room)
    ) r
), good AS MATERIALIZED (
    SELECT *, row_number() OVER (ORDER BY rank, position) AS k FROM picked WHERE NOT spent
), sorted AS (
    SELECT size, row_number() OVER o AS i, sum(size) OVER o - size AS before, count(*) OVER () AS n FROM claimers
    WINDOW o AS (ORDER BY size ROWS UNBOUNDED PRECEDING)
), level AS MATERIALIZED (
    SELECT COALESCE((SELECT x.l FROM (
        SELECT s.i, s.size, ceil((g.n - s.before)::numeric / (s.n - s.i + 1))::int AS l
        FROM sorted s, (SELECT count(*) AS n FROM good) g) x WHERE x.l <= x.size ORDER BY x.i LIMIT 1),
        (SELECT max(size) FROM claimers)) AS l
), slots AS (
    SELECT row_number() OVER (ORDER BY r.r, claimers.n) AS k, claimers.n
    FROM claimers, level, LATERAL generate_series(1, LEAST(claimers.size, level.l)) AS r(r)
), dealt AS MATERIALIZED (
    SELECT * FROM (
        SELECT good.*, s.n, j.created_at, j.key, j.name, j.tag, j.data, j.meta, j.body, j.reply_to, j.first_claimed_at,
            j.progress, sum(j.bytes) OVER (PARTITION BY s.n ORDER BY good.k) AS bytes,
            sum(j.bytes) OVER (ORDER BY good.k) AS all_bytes, row_number() OVER (PARTITION BY s.n
                ORDER BY good.k) AS first
        FROM good JOIN slots s ON s.k = good.k CROSS JOIN LATERAL (
            SELECT j.created_at, j.key, j.name, j.tag, j.data, j.meta, j.body, j.reply_to, j.first_claimed_at,
                j.progress, {bytes(j)} AS bytes
            FROM leasequeue_job j WHERE j.seq = good.seq OFFSET 0) j) g
    WHERE (g.bytes <= %(bytes)s::bigint OR g.first = 1) AND (g.all_bytes <= %(all_bytes)s::bigint OR g.k = 1)
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT tid FROM dealt))
), claims AS MATERIALIZED (
    SELECT {token(x.flags)} AS token, claimers.n, claimers.node, claimers.connection, claimers.shown,
        queue.id AS queue_id,
        queue.name AS queue, queue.max_deliveries, x.flags, x.seqs, x.deliveries,
        CASE WHEN x.flags & {MIXED} = 0 THEN x.name END AS name, clock.now,
        COALESCE(claimers.lease, queue.lease_ms) AS ttl,
        clock.now + COALESCE(claimers.lease, queue.lease_ms) * interval '1 ms' AS deadline
    FROM (SELECT n, {claim_flags(dealt)} AS flags,
            min(name) AS name, array_agg(seq ORDER BY k) AS seqs,
            CASE WHEN max(deliveries) > 0 THEN array_agg(deliveries + 1 ORDER BY k) END AS deliveries
        FROM dealt GROUP BY n) x
    JOIN claimers ON claimers.n = x.n, queue, clock
), made AS (
    INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, name,
        connection, seqs, deliveries)
    SELECT token, 0, queue_id, deadline, now, ttl, 0, flags, node, name, connection, seqs, deliveries FROM claims
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs,
        deliveries, waited)
    SELECT (SELECT {txid()}), claims.now, claims.queue_id, claims.token, claims.deadline,
        min(dealt.seq), max(dealt.seq), {event.CLAIMED}, claims.node,
        dealt.name, array_agg(dealt.seq ORDER BY dealt.k),
        CASE WHEN max(dealt.deliveries) > 0 THEN array_agg(dealt.deliveries + 1 ORDER BY dealt.k) END,
        array_agg({waited(claims.now, dealt.ready_at)} ORDER BY dealt.k)
    FROM dealt JOIN claims ON claims.n = dealt.n
    GROUP BY claims.now, claims.queue_id, claims.token, claims.deadline, claims.node, dealt.name
)
SELECT due.flags, (SELECT count(*) FROM picked WHERE spent), (SELECT count(*) FROM dealt),
    ARRAY(SELECT claims.token FROM claimers LEFT JOIN claims ON claims.n = claimers.n ORDER BY claimers.n),
    claims.n::int, dealt.seq, claims.queue_id, claims.queue, claims.token,
    date_part('epoch', claims.deadline) AS deadline_epoch, date_part('epoch', dealt.created_at) AS created_epoch,
    date_part('epoch', claims.now) AS claimed_epoch, dealt.deliveries + 1 AS deliveries,
    COALESCE(dealt.max_deliveries, claims.max_deliveries) AS max_deliveries, dealt.rank, dealt.key, dealt.name,
    dealt.tag, dealt.data::text AS data_json, dealt.meta::text AS meta_json, dealt.body, dealt.reply_to,
    CASE WHEN dealt.flags & {FAILED} <> 0 THEN leasequeue_errors(dealt.seq)::text END AS errors_json,
    date_part('epoch', COALESCE(dealt.first_claimed_at, claims.now)) AS first_claimed_epoch,
    dealt.progress::text AS progress_json, dealt.position, dealt.flags::int
FROM due LEFT JOIN (dealt JOIN claims ON claims.n = dealt.n AND claims.shown) ON true ORDER BY claims.n, dealt.k
