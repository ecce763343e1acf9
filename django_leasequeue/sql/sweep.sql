-- Purpose: expired leases become ready again (or dead, where deliveries end at release); claims that are over go.
-- Parameters: queues (ids), size (claims per queue), jobs (of all claims together; the last claim goes over it), now, autocommit.
-- Index: leasequeue_claim_deadline from the floor on, leasequeue_job_pkey, leasequeue_floor_place, leasequeue_topicstate_pkey.
--   The numbers of claims that go are the last trace of jobs that were done: the highest is remembered (topic_state). While
--   another transaction holds that row the claims stay: nobody waits.
-- Returns: seq, queue id, outcome (0 ready, 3 dead in place, -1 used up and bound for another topic: move it next), key,
--   name, node, deliveries; first one row with the number of claims removed or moved on (seq) and read (outcome; size when
--   some were left for their many jobs).
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT q.*, 'epoch'::timestamptz + COALESCE(f.value, 0) * interval '1 us' AS since
    FROM leasequeue_queue q LEFT JOIN leasequeue_queuefloor f ON f.queue_id = q.id AND f.kind = 2 AND f.rank = 0
    WHERE q.id = ANY (%(queues)s::bigint[])
), locked AS MATERIALIZED (
    SELECT c.* FROM q CROSS JOIN LATERAL (
        SELECT c.id, c.queue_id, c.seqs, c.deadline FROM leasequeue_claim c
        WHERE c.queue_id = q.id AND c.deadline >= q.since AND c.deadline < (SELECT now FROM t)
        ORDER BY c.deadline LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) c
), c AS MATERIALIZED (
    SELECT id, queue_id, seqs FROM (SELECT *, sum(cardinality(seqs)) OVER (ORDER BY deadline, id) - cardinality(seqs) AS ahead
        FROM locked) l WHERE ahead < %(jobs)s::int
), held AS MATERIALIZED (
    SELECT j.seq, j.claim, j.deadline FROM leasequeue_job j
    WHERE j.seq = ANY (ARRAY(SELECT unnest(c.seqs) FROM c)) AND j.claim = ANY (ARRAY(SELECT id FROM c)) AND j.state = 2
), x AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.key, j.name, j.deliveries, j.node, j.claim, j.deadline, q.requeue, q.dead_letter, q.leases_durable,
        CASE WHEN q.dead_ttl_ms > 0 THEN COALESCE(j.result_ttl_ms, q.dead_ttl_ms) END AS dead_ttl_ms,
        q.exhaust_at = 'release' AND q.dead_letter IS NOT NULL
            AND COALESCE(j.max_deliveries, q.max_deliveries) BETWEEN 1 AND j.deliveries AS spent
    FROM leasequeue_job j JOIN q ON q.id = j.queue_id, t
    WHERE j.seq = ANY (ARRAY(SELECT held.seq FROM held, t WHERE held.deadline < t.now))
        AND j.state = 2 AND j.deadline < t.now
    ORDER BY j.seq FOR UPDATE OF j SKIP LOCKED
), r AS (
    UPDATE leasequeue_job j SET
        state = CASE WHEN x.spent THEN 3 ELSE 0 END,
        position = CASE WHEN x.requeue = 'back' THEN nextval('leasequeue_job_seq_seq') ELSE j.position END,
        node = NULL, claim = NULL, deadline = NULL,
        dead_at = CASE WHEN x.spent THEN t.now END,
        expires_at = CASE WHEN x.spent THEN t.now + x.dead_ttl_ms * interval '1 ms'
            WHEN NOT x.spent THEN j.expires_at END,
        errors = (CASE WHEN jsonb_array_length(COALESCE(j.errors, '[]')) >= 20 THEN j.errors - 0
            ELSE COALESCE(j.errors, '[]') END) || jsonb_build_object('at', t.now, 'node', x.node, 'deliveries',
            j.deliveries, 'type', 'LEASE_EXPIRED', 'message', 'the lease expired: the worker died, hung or lost its database'),
        error_type = 'LEASE_EXPIRED',
        error = 'the lease expired: the worker died, hung or lost its database',
        fingerprint = 'lease_expired'
    FROM x, t WHERE j.seq = x.seq AND NOT (x.spent AND x.dead_letter <> 'self')
    RETURNING j.seq, j.queue_id, j.rank, j.position, j.state, j.deliveries, j.created_at, j.key, j.name, j.reply_to,
        x.node, x.claim, x.deadline, t.now
), floors AS (
    UPDATE leasequeue_queuefloor f SET value = LEAST(f.value, m.low), candidate = LEAST(f.candidate, m.low)
    FROM (SELECT queue_id, rank, min(position) AS low FROM r WHERE state = 0 GROUP BY queue_id, rank) m
    WHERE f.queue_id = m.queue_id AND f.kind = 0 AND f.rank = m.rank AND (f.value > m.low OR f.candidate > m.low)
), remain AS MATERIALIZED (
    SELECT u.claim, min(u.deadline) AS deadline FROM (
        SELECT a.claim, a.deadline FROM (SELECT seq, claim, deadline, 1 AS n FROM held
            UNION ALL SELECT seq, claim, deadline, -1 FROM r) a
        GROUP BY a.seq, a.claim, a.deadline HAVING sum(a.n) > 0) u
    GROUP BY u.claim
), heads AS MATERIALIZED (
    SELECT c.queue_id, max(u.seq) AS head_seq FROM c, unnest(c.seqs) AS u(seq) GROUP BY c.queue_id
), low AS MATERIALIZED (
    SELECT s.queue_id FROM leasequeue_topicstate s WHERE s.queue_id = ANY (ARRAY(SELECT queue_id FROM heads))
        AND s.head_seq < (SELECT head_seq FROM heads WHERE heads.queue_id = s.queue_id)
), mine AS MATERIALIZED (
    SELECT s.queue_id FROM leasequeue_topicstate s WHERE s.queue_id = ANY (ARRAY(SELECT queue_id FROM low))
    FOR NO KEY UPDATE SKIP LOCKED
), over AS (
    DELETE FROM leasequeue_claim WHERE id = ANY (ARRAY(SELECT id FROM c EXCEPT SELECT claim FROM remain))
        AND queue_id <> ALL (ARRAY(SELECT queue_id FROM low EXCEPT SELECT queue_id FROM mine))
    RETURNING id
), remembered AS (
    UPDATE leasequeue_topicstate s SET head_seq = heads.head_seq FROM heads
    WHERE s.queue_id = ANY (ARRAY(SELECT queue_id FROM mine)) AND heads.queue_id = s.queue_id AND s.head_seq < heads.head_seq
), first AS (
    INSERT INTO leasequeue_topicstate (queue_id, head_seq) SELECT queue_id, head_seq FROM heads
    WHERE NOT EXISTS (SELECT FROM leasequeue_topicstate s WHERE s.queue_id = heads.queue_id) ORDER BY queue_id
    ON CONFLICT DO NOTHING
), moved AS (
    UPDATE leasequeue_claim k SET deadline = remain.deadline FROM remain
    WHERE k.id = ANY (ARRAY(SELECT claim FROM remain)) AND k.id = remain.claim AND k.deadline <> remain.deadline RETURNING k.id
), deadened AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + n.n
    FROM (SELECT queue_id, count(*) AS n FROM r WHERE state = 3 GROUP BY queue_id) n WHERE q.id = n.queue_id
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at,
        deadline, name, detail)
    SELECT pg_current_xact_id()::text::bigint, r.now, r.queue_id, r.seq, k.kind, r.node, r.deliveries, r.claim,
        r.created_at, r.deadline, r.name,
        CASE WHEN r.state = 3 THEN '{"error_type": "LEASE_EXPIRED", "fingerprint": "lease_expired"}'::jsonb END
    FROM r, LATERAL (SELECT 7 AS kind UNION ALL SELECT 8 WHERE r.state = 3) k
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, w.queue_id::int)
        THEN pg_advisory_unlock(1280657731, w.queue_id::int)::text
        ELSE pg_notify('leasequeue', 'q' || w.queue_id)::text END AS sent
    FROM (SELECT DISTINCT queue_id FROM r WHERE state = 0) w
)
SELECT (SELECT count(*) FROM over) + (SELECT count(*) FROM moved) AS seq, NULL::bigint AS queue_id,
    (SELECT CASE WHEN count(*) > (SELECT count(*) FROM c) THEN %(size)s::int ELSE count(*)::int END FROM locked) AS outcome, NULL::text AS key, NULL::text AS name, NULL::text AS node,
    (SELECT count(sent)::int FROM wake) AS deliveries,
    (SELECT CASE WHEN %(autocommit)s::bool AND bool_and(NOT leases_durable)
        THEN set_config('synchronous_commit', 'off', true) END FROM x)
UNION ALL
SELECT r.seq, r.queue_id, r.state, r.key, r.name, r.node, r.deliveries,
    CASE WHEN r.state = 3 AND r.reply_to IS NOT NULL
        THEN (SELECT string_agg(pg_notify(c, r.seq || ':2:' || COALESCE(r.key, ''))::text, '')
            FROM string_to_table(r.reply_to, ' ') c) END
FROM r
UNION ALL
SELECT x.seq, x.queue_id, -1, x.key, x.name, x.node, x.deliveries, NULL FROM x WHERE x.spent AND x.dead_letter <> 'self'
