-- Purpose: lease up to n ready jobs of the named queues, in order of queue, rank, position, to one node.
-- Parameters: project, queues (names in order), node, size, lease_ms (null: the queue's), grace_ms, tag (null: any),
--   connection (null or a stream's mark), trail_queues, trail_ranks, trail (positions not to look at again), force (take jobs although expired leases or due jobs wait),
--   jitter (nothing of queues whose claims gather in a longer window than so many ms), now, autocommit.
-- Index: leasequeue_job_ready from the floor on, leasequeue_job_pkey; probes leasequeue_claim_deadline,
--   leasequeue_job_delayed, leasequeue_job_expires. The probes order their one row: else a planner who expects many such
--   rows in the table reads it from its beginning.
-- Returns: on every row due (1 expired leases, 2 due delayed jobs, 4 expired messages: nothing was claimed, sweep first),
--   spent (jobs met that used up their deliveries: move them aside), then the job, or nulls.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT q.*, u.ord FROM unnest(%(queues)s::text[]) WITH ORDINALITY AS u(name, ord)
    JOIN leasequeue_queue q ON q.project = %(project)s AND q.name = u.name
    WHERE type = 'queue' AND paused_at IS NULL AND claim_jitter_ms <= %(jitter)s::int
), f AS MATERIALIZED (
    SELECT q.id, q.ord, l.kind, l.rank, GREATEST(l.value, h.past + 1) AS value,
        'epoch'::timestamptz + (CASE WHEN l.kind = 0 THEN 0 ELSE l.value END) * interval '1 us' AS since,
        CASE WHEN q.exhaust_at = 'claim' AND q.dead_letter IS NOT NULL THEN q.max_deliveries ELSE 0 END AS max,
        q.exhaust_at = 'claim' AND q.dead_letter IS NOT NULL AS exhausts
    FROM q JOIN leasequeue_queuefloor l ON l.queue_id = q.id
    LEFT JOIN unnest(%(trail_queues)s::text[], %(trail_ranks)s::smallint[], %(trail)s::bigint[]) AS h(queue, rank, past)
        ON l.kind = 0 AND h.queue = q.name AND h.rank = l.rank
    ORDER BY q.ord, l.rank
), due AS MATERIALIZED (
    SELECT
        (EXISTS (SELECT FROM f, LATERAL (SELECT FROM leasequeue_claim c WHERE c.queue_id = f.id
            AND c.deadline >= f.since AND c.deadline < (SELECT now FROM t) ORDER BY c.deadline LIMIT 1) x WHERE f.kind = 2))::int
        + 2 * (EXISTS (SELECT FROM f, LATERAL (SELECT FROM leasequeue_job j WHERE j.queue_id = f.id AND j.state = 1
            AND j.available_at >= f.since AND j.available_at <= (SELECT now FROM t)
            ORDER BY j.available_at LIMIT 1) x WHERE f.kind = 1))::int
        + 4 * (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_job j WHERE j.queue_id = q.id
            AND j.expires_at IS NOT NULL AND NOT j.state = 2 AND j.expires_at <= (SELECT now FROM t)
            ORDER BY j.expires_at LIMIT 1) x))::int
        AS flags,
        CASE WHEN %(autocommit)s::bool AND NOT EXISTS (SELECT FROM q WHERE leases_durable)
            THEN set_config('synchronous_commit', 'off', true) END AS relaxed
), p AS MATERIALIZED (
    SELECT j.* FROM f CROSS JOIN LATERAL (
        SELECT j.seq, j.queue_id, f.ord,
            f.exhausts AND COALESCE(j.max_deliveries, f.max) BETWEEN 1 AND j.deliveries AS spent
        FROM leasequeue_job j
        WHERE j.queue_id = f.id AND j.rank = f.rank AND j.state = 0 AND j.position >= f.value
            AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM t))
            AND (%(tag)s::text IS NULL OR j.tag = %(tag)s::text)
        ORDER BY j.position LIMIT %(size)s::int FOR UPDATE OF j SKIP LOCKED
    ) j
    WHERE f.kind = 0
    LIMIT (SELECT CASE WHEN %(force)s::bool OR flags = 0 THEN %(size)s::int ELSE 0 END FROM due)
), c AS MATERIALIZED (
    SELECT nextval('leasequeue_claim_id_seq') AS id, q.id AS queue_id, q.name AS queue, q.ord, g.seqs, q.dedup_until,
        COALESCE(%(lease_ms)s::bigint, q.lease_ms) AS ttl, q.max_deliveries,
        t.now + COALESCE(%(lease_ms)s::bigint, q.lease_ms) * interval '1 ms' AS deadline
    FROM (SELECT queue_id, array_agg(seq) AS seqs FROM p WHERE NOT spent GROUP BY queue_id) g
    JOIN q ON q.id = g.queue_id, t
), made AS (
    INSERT INTO leasequeue_claim (id, queue_id, deadline, created_at, ttl_ms, grace_ms, node, connection, seqs)
    SELECT c.id, c.queue_id, c.deadline, t.now, c.ttl, %(grace_ms)s::bigint, %(node)s::text, %(connection)s::text,
        c.seqs
    FROM c, t
), l AS (
    UPDATE leasequeue_job j SET state = 2, node = %(node)s::text, claim = c.id, deadline = c.deadline,
        deliveries = j.deliveries + 1, claimed_at = t.now, first_claimed_at = COALESCE(j.first_claimed_at, t.now),
        available_at = NULL, key = CASE WHEN c.dedup_until = 'claimed' THEN NULL ELSE j.key END,
        expires_at = GREATEST(j.expires_at,
            CASE WHEN j.expires_at IS NOT NULL THEN c.deadline + %(grace_ms)s::bigint * interval '1 ms' END)
    FROM c, t
    WHERE j.queue_id = c.queue_id AND j.seq = ANY (ARRAY(SELECT seq FROM p WHERE NOT spent))
    RETURNING j.*, c.queue, c.ord, c.max_deliveries AS queue_max_deliveries
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at,
        deadline, name)
    SELECT (SELECT pg_current_xact_id()::text::bigint), l.claimed_at, l.queue_id, l.seq, 2, l.node, l.deliveries, l.claim,
        l.created_at, l.deadline, l.name
    FROM l
)
SELECT due.flags, (SELECT count(*) FROM p WHERE spent), l.seq, l.queue_id, l.queue, l.claim, l.deadline, l.created_at,
    l.claimed_at, l.deliveries, COALESCE(l.max_deliveries, l.queue_max_deliveries), l.rank, l.key, l.name, l.tag,
    l.data::text, l.meta::text, l.body, l.reply_to, l.errors::text, l.first_claimed_at, l.progress::text, l.position
FROM due LEFT JOIN l ON true ORDER BY l.ord, l.rank, l.position
