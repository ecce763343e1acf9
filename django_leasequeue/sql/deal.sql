-- Purpose: lease ready jobs of one queue to several claimers at once, dealt like cards: round-robin in order of arrival, each
--   up to its size (spec/topics C6). Otherwise as claim.
-- Parameters: project, queue (name); arrays, one entry a claimer: nodes, sizes, leases (ms, null: the queue's),
--   connections (streams' marks, or null), shown (whether its jobs are wanted in the answer); most (jobs of the whole
--   deal), force (deal although expired leases or due jobs wait), now, autocommit.
-- Index: leasequeue_queue_name, leasequeue_floor_place, leasequeue_job_ready from the floor on, leasequeue_job_pkey;
--   probes leasequeue_claim_deadline, leasequeue_job_delayed, leasequeue_job_expires.
-- Returns: on every row due and spent as claim, how many jobs were dealt, each claimer's claim (an array, null: nothing);
--   then the claimer's place, its job, or nulls.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT * FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND type = 'queue' AND paused_at IS NULL
), f AS MATERIALIZED (
    SELECT q.id, l.kind, l.rank, l.value,
        'epoch'::timestamptz + (CASE WHEN l.kind = 0 THEN 0 ELSE l.value END) * interval '1 us' AS since,
        CASE WHEN q.exhaust_at = 'claim' AND q.dead_letter IS NOT NULL THEN q.max_deliveries ELSE 0 END AS max,
        q.exhaust_at = 'claim' AND q.dead_letter IS NOT NULL AS exhausts
    FROM q JOIN leasequeue_queuefloor l ON l.queue_id = q.id ORDER BY l.rank
), due AS MATERIALIZED (
    SELECT
        (EXISTS (SELECT FROM f, LATERAL (SELECT FROM leasequeue_claim c WHERE c.queue_id = f.id
            AND c.deadline >= f.since AND c.deadline < (SELECT now FROM t) LIMIT 1) x WHERE f.kind = 2))::int
        + 2 * (EXISTS (SELECT FROM f, LATERAL (SELECT FROM leasequeue_job j WHERE j.queue_id = f.id AND j.state = 1
            AND j.available_at >= f.since AND j.available_at <= (SELECT now FROM t) LIMIT 1) x WHERE f.kind = 1))::int
        + 4 * (EXISTS (SELECT FROM q, LATERAL (SELECT FROM leasequeue_job j WHERE j.queue_id = q.id
            AND j.expires_at IS NOT NULL AND NOT j.state = 2 AND j.expires_at <= (SELECT now FROM t) LIMIT 1) x))::int
        AS flags,
        CASE WHEN %(autocommit)s::bool AND NOT EXISTS (SELECT FROM q WHERE leases_durable)
            THEN set_config('synchronous_commit', 'off', true) END AS relaxed
), w AS MATERIALIZED (
    SELECT * FROM ROWS FROM (
        unnest(%(nodes)s::text[]), unnest(%(sizes)s::int[]), unnest(%(leases)s::bigint[]),
        unnest(%(connections)s::text[]), unnest(%(shown)s::bool[])
    ) WITH ORDINALITY AS u(node, size, lease, connection, shown, n)
), p AS MATERIALIZED (
    SELECT j.* FROM f CROSS JOIN LATERAL (
        SELECT j.seq, j.rank, j.position,
            f.exhausts AND COALESCE(j.max_deliveries, f.max) BETWEEN 1 AND j.deliveries AS spent
        FROM leasequeue_job j
        WHERE j.queue_id = f.id AND j.rank = f.rank AND j.state = 0 AND j.position >= f.value
            AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM t))
        ORDER BY j.position LIMIT LEAST((SELECT sum(size) FROM w), %(most)s::int) FOR UPDATE OF j SKIP LOCKED
    ) j
    WHERE f.kind = 0
    LIMIT (SELECT CASE WHEN %(force)s::bool OR flags = 0
        THEN LEAST((SELECT sum(size) FROM w), %(most)s::int) ELSE 0 END FROM due)
), good AS MATERIALIZED (
    SELECT seq, row_number() OVER (ORDER BY rank, position) AS k FROM p WHERE NOT spent
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
), dealt AS MATERIALIZED (
    SELECT g.seq, s.n FROM good g JOIN slots s ON s.k = g.k
), c AS MATERIALIZED (
    SELECT nextval('leasequeue_claim_id_seq') AS id, w.n, w.node, w.connection, w.shown, q.id AS queue_id, q.name AS queue,
        g.seqs, q.dedup_until, COALESCE(w.lease, q.lease_ms) AS ttl, q.max_deliveries,
        t.now + COALESCE(w.lease, q.lease_ms) * interval '1 ms' AS deadline
    FROM (SELECT n, array_agg(seq) AS seqs FROM dealt GROUP BY n) g JOIN w ON w.n = g.n, q, t
), made AS (
    INSERT INTO leasequeue_claim (id, queue_id, deadline, created_at, ttl_ms, grace_ms, node, connection, seqs)
    SELECT c.id, c.queue_id, c.deadline, t.now, c.ttl, 0, c.node, c.connection, c.seqs FROM c, t
), l AS (
    UPDATE leasequeue_job j SET state = 2, node = c.node, claim = c.id, deadline = c.deadline,
        deliveries = j.deliveries + 1, claimed_at = t.now, first_claimed_at = COALESCE(j.first_claimed_at, t.now),
        available_at = NULL, key = CASE WHEN c.dedup_until = 'claimed' THEN NULL ELSE j.key END,
        expires_at = GREATEST(j.expires_at, CASE WHEN j.expires_at IS NOT NULL THEN c.deadline END)
    FROM dealt d JOIN c ON c.n = d.n, t
    WHERE j.seq = d.seq AND j.seq = ANY (ARRAY(SELECT seq FROM dealt))
    RETURNING j.*, c.queue, c.n, c.shown, c.max_deliveries AS queue_max_deliveries
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at,
        deadline, name)
    SELECT (SELECT pg_current_xact_id()::text::bigint), l.claimed_at, l.queue_id, l.seq, 2, l.node, l.deliveries, l.claim,
        l.created_at, l.deadline, l.name
    FROM l
)
SELECT due.flags, (SELECT count(*) FROM p WHERE spent), (SELECT count(*) FROM good),
    ARRAY(SELECT c.id FROM w LEFT JOIN c ON c.n = w.n ORDER BY w.n), l.n::int,
    l.seq, l.queue_id, l.queue, l.claim, l.deadline, l.created_at, l.claimed_at, l.deliveries,
    COALESCE(l.max_deliveries, l.queue_max_deliveries), l.rank, l.key, l.name, l.tag, l.data::text, l.meta::text, l.body,
    l.reply_to, l.errors::text, l.first_claimed_at, l.progress::text, l.position
FROM due LEFT JOIN l ON l.shown ORDER BY l.n, l.rank, l.position
