-- Purpose: lease up to n ready jobs of the named queues, in order of queue, rank, position, to one node. Their rows in ready go,
--   their numbers stand in the claim; the jobs themselves are only read.
-- Parameters: project, queues (names in order), node, size, lease_ms (null: the queue's), grace_ms, tag (null: any),
--   connection (null or a stream's mark), trail_queues, trail_ranks, trail (fresh positions not to look at again), force (take jobs although
--   expired leases or due jobs wait), alone (a suspect is given alone), jitter (nothing of queues whose claims gather in a
--   longer window than so many ms), bytes (of payloads together; the first job always fits), now, autocommit.
-- Index: leasequeue_ready_pkey, the fresh lane from the floor on; leasequeue_ready_tag; leasequeue_job_pkey, leasequeue_floor_place,
--   leasequeue_rank_place; probes leasequeue_claim_deadline, leasequeue_delayed_due, leasequeue_ready_expires. The probes
--   order their one row: else a planner who expects many such rows reads the table from its beginning.
-- Returns: on every row due (1 expired leases, 2 due delayed jobs, 4 expired messages: nothing was claimed, sweep first),
--   spent (jobs met that used up their deliveries: move them aside), cut (jobs were left for a suspect or for their size),
--   then the job, or nulls.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT q.*, u.ord FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS u(name, ord)
    JOIN leasequeue_queue q ON q.project = %(project)s AND q.name = u.name
    WHERE type = 'queue' AND paused_at IS NULL AND claim_jitter_ms <= %(jitter)s::int
), f AS MATERIALIZED (
    SELECT q.id, q.ord, k.rank, GREATEST(v.value, h.past + 1, 0) AS low,
        CASE WHEN q.exhaust_at = 'claim' AND q.dead_letter IS NOT NULL THEN q.max_deliveries END AS max
    FROM q CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id) k
    LEFT JOIN LATERAL (SELECT f.value FROM leasequeue_queuefloor f WHERE f.queue_id = q.id AND f.kind = 0 AND f.rank = k.rank
        ORDER BY f.value DESC LIMIT 1) v ON true
    LEFT JOIN unnest(%(trail_queues)s::text[], %(trail_ranks)s::smallint[], %(trail)s::bigint[]) AS h(queue, rank, past)
        ON h.queue = q.name AND h.rank = k.rank
    ORDER BY q.ord, k.rank
), due AS MATERIALIZED (
    SELECT CASE WHEN %(force)s::bool THEN 0 ELSE
        (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_claim c WHERE c.queue_id = q.id AND c.deadline < (SELECT now FROM t)
            AND c.deadline >= 'epoch'::timestamptz + interval '1 us' * COALESCE((SELECT f.value FROM leasequeue_queuefloor f
                WHERE f.queue_id = q.id AND f.kind = 2 AND f.rank = 0 ORDER BY f.value DESC LIMIT 1), 0)
            ORDER BY c.deadline LIMIT 1) x))::int
        + 2 * (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_delayed d WHERE d.queue_id = q.id
            AND d.available_at <= (SELECT now FROM t)
            AND d.available_at >= 'epoch'::timestamptz + interval '1 us' * COALESCE((SELECT f.value FROM leasequeue_queuefloor f
                WHERE f.queue_id = q.id AND f.kind = 1 AND f.rank = 0 ORDER BY f.value DESC LIMIT 1), 0)
            ORDER BY d.available_at LIMIT 1) x))::int
        + 4 * (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_ready r WHERE r.queue_id = q.id
            AND r.expires_at IS NOT NULL AND r.expires_at <= (SELECT now FROM t) ORDER BY r.expires_at LIMIT 1) x))::int
        END AS flags,
        CASE WHEN %(autocommit)s::bool AND NOT EXISTS (SELECT FROM q WHERE leases_durable)
            THEN set_config('synchronous_commit', 'off', true) END AS relaxed
), p AS MATERIALIZED (
    SELECT r.*, row_number() OVER () AS n, COALESCE(r.max_deliveries, r.max) BETWEEN 1 AND r.deliveries AND r.max IS NOT NULL AS spent
    FROM (
        SELECT f.ord, f.max, f.id AS queue_id, r.* FROM f CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT r.ctid AS tid, r.seq, r.rank, r.position, r.deliveries, r.flags, r.ready_at, r.max_deliveries
                FROM leasequeue_ready r
                WHERE %(tag)s::text IS NULL AND r.queue_id = f.id AND r.rank = f.rank AND r.lane = 1
                    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM t))
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) a
            UNION ALL
            SELECT * FROM (
                SELECT r.ctid AS tid, r.seq, r.rank, r.position, r.deliveries, r.flags, r.ready_at, r.max_deliveries
                FROM leasequeue_ready r
                WHERE %(tag)s::text IS NULL AND r.queue_id = f.id AND r.rank = f.rank AND r.lane = 2 AND r.position >= f.low
                    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM t))
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) b
            UNION ALL
            SELECT * FROM (
                SELECT r.ctid AS tid, r.seq, r.rank, r.position, r.deliveries, r.flags, r.ready_at, r.max_deliveries
                FROM leasequeue_ready r
                WHERE r.queue_id = f.id AND r.tag = %(tag)s::text AND r.rank = f.rank
                    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM t))
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) c
            ORDER BY position LIMIT %(size)s::int) r
        LIMIT (SELECT CASE WHEN flags = 0 THEN %(size)s::int ELSE 0 END FROM due)
    ) r
), l AS MATERIALIZED (
    SELECT p.*, t.now, j.created_at, j.key, j.name, j.tag, j.data::text AS data, j.meta::text AS meta, j.body, j.reply_to,
        j.first_claimed_at, j.progress::text AS progress, j.max_deliveries AS own_max,
        sum(COALESCE(octet_length(j.data::text), 0) + COALESCE(octet_length(j.meta::text), 0)
            + COALESCE(octet_length(j.body), 0)) OVER (ORDER BY p.n ROWS UNBOUNDED PRECEDING) AS bytes
    FROM t, p CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = p.seq OFFSET 0) j
    WHERE NOT p.spent
        AND (NOT %(alone)s::bool OR p.n < COALESCE((SELECT min(s.n) FROM p s WHERE s.flags & 32 <> 0), 2147483647)
            OR p.n = 1)
), g AS MATERIALIZED (
    SELECT l.* FROM l WHERE l.bytes <= %(bytes)s::bigint OR l.n = (SELECT min(n) FROM l)
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT tid FROM g))
), c AS MATERIALIZED (
    SELECT (floor(random() * 1073741824)::bigint << 33) + (nextval('leasequeue_claim_token_seq') << 1)
            + (x.flags <> 0)::int AS token,
        q.id AS queue_id, q.name AS queue, q.max_deliveries, x.flags, x.seqs, x.deliveries,
        CASE WHEN x.flags & 16 = 0 THEN x.name END AS name, t.now, COALESCE(%(lease_ms)s::bigint, q.lease_ms) AS ttl,
        t.now + COALESCE(%(lease_ms)s::bigint, q.lease_ms) * interval '1 ms' AS deadline
    FROM (SELECT g.queue_id, (bit_or(g.flags) & 15)::int
                + CASE WHEN count(g.name) IN (0, count(*)) AND min(g.name) IS NOT DISTINCT FROM max(g.name) THEN 0 ELSE 16 END AS flags,
            min(g.name) AS name, array_agg(g.seq) AS seqs,
            CASE WHEN max(g.deliveries) > 0 THEN array_agg(g.deliveries + 1) END AS deliveries
        FROM g GROUP BY g.queue_id) x
    JOIN q ON q.id = x.queue_id, t
), made AS (
    INSERT INTO leasequeue_claim (token, part, queue_id, deadline, created_at, ttl_ms, grace_ms, flags, node, name, connection,
        seqs, deliveries)
    SELECT c.token, 0, c.queue_id, c.deadline, c.now, c.ttl, %(grace_ms)s::bigint, c.flags, %(node)s::text, c.name,
        %(connection)s::text, c.seqs, c.deliveries
    FROM c
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs, deliveries,
        waited)
    SELECT (SELECT pg_current_xact_id()::text::bigint), c.now, c.queue_id, c.token, c.deadline, min(g.seq), max(g.seq), 2,
        %(node)s::text, g.name, array_agg(g.seq), CASE WHEN max(g.deliveries) > 0 THEN array_agg(g.deliveries + 1) END,
        array_agg(LEAST(GREATEST(extract(epoch FROM c.now - g.ready_at) * 1000, 0), 2147483647)::int)
    FROM g JOIN c ON c.queue_id = g.queue_id
    GROUP BY c.now, c.queue_id, c.token, c.deadline, g.name
)
SELECT due.flags, (SELECT count(*) FROM p WHERE spent), (SELECT count(*) FROM p WHERE NOT spent) > (SELECT count(*) FROM g),
    g.seq, g.queue_id, c.queue, c.token, c.deadline, g.created_at,
    c.now, g.deliveries + 1, COALESCE(g.own_max, c.max_deliveries), g.rank, g.key, g.name, g.tag, g.data, g.meta, g.body,
    g.reply_to, CASE WHEN g.flags & 8 <> 0 THEN leasequeue_errors(g.seq)::text END, COALESCE(g.first_claimed_at, c.now),
    g.progress, g.position, g.flags::int
FROM due LEFT JOIN (g JOIN c ON c.queue_id = g.queue_id) ON true ORDER BY g.n
