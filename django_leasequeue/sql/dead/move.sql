-- Purpose: dead-letter jobs to another topic: append to it with provenance, remove here, count, in one statement. In a log
--   a dead letter keeps its rank and its own limits for the day it goes home; in a queue it is a job like any other. Meta to which
--   nothing can be added (no object, or jsonb cannot hold it) is kept whole, as $meta. The limit of a dead letter is noted there too;
--   one of a workflow leaves a result behind, which its workflow looks at.
-- Parameters: queue (source id), target (topic id), seqs (at most 1,000); node and claims (the holder who released them, and its
--   tokens; null for jobs whose lease expired or that were met by a claim); keyed (a dead letter keeps its key, and stays here if
--   the target has it: else it goes without one); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key, leasequeue_ready_pkey, leasequeue_claim_pkey, leasequeue_claim_deadline from the
--   floor on, leasequeue_attempt_job, leasequeue_deadletter_pkey, leasequeue_floor_place, leasequeue_rank_place,
--   leasequeue_largeobject_seq, leasequeue_jobstep_pkey; of members leasequeue_member_pkey, leasequeue_limitkey_pkey, leasequeue_limit_pkey. Waits for
--   the claims of a holder; what is locked otherwise is passed over.
-- Pages: 20 + 78 a row
-- Returns: the source seq, key, name, deliveries, the new seq (null: its key is taken in the target); waiting callers are notified.
WITH q AS MATERIALIZED (
    SELECT *, {now()} AS now, pg_current_xact_id()::text::bigint AS txid FROM leasequeue_queue WHERE id = %(queue)s
), target AS MATERIALIZED (
    SELECT q.now, q.txid, o.id, o.name, o.type = 'log' AS log,
        CASE WHEN o.ttl_ms > 0 THEN q.now + o.ttl_ms * interval '1 ms' END AS expires_at
    FROM q, leasequeue_queue o WHERE o.id = %(target)s
), held AS MATERIALIZED (
    SELECT c.* FROM leasequeue_claim c
    WHERE c.token = ANY (%(claims)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE AND c.queue_id + 0 = %(queue)s::bigint
        AND c.seqs && %(seqs)s::bigint[]
    ORDER BY c.token, c.part FOR NO KEY UPDATE
), over AS MATERIALIZED (
    SELECT c.* FROM leasequeue_claim c
    WHERE %(node)s::text IS NULL AND c.queue_id = %(queue)s::bigint AND c.deadline < (SELECT now FROM q)
        AND c.deadline >= 'epoch'::timestamptz + interval '1 us' * {floor(%(queue)s::bigint, 2, 0)}
        AND c.seqs && %(seqs)s::bigint[]
    ORDER BY c.deadline LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED
), c AS MATERIALIZED (
    SELECT * FROM held UNION ALL SELECT * FROM over
), s AS MATERIALIZED (
    SELECT u.seq, r.place, r.deliveries, r.flags, NULL::bigint AS token, NULL::smallint AS part, NULL::text AS node,
        NULL::timestamptz AS deadline
    FROM q CROSS JOIN unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
    CROSS JOIN (VALUES (2::smallint), (1::smallint)) AS v(lane)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS place, r.deliveries, r.flags FROM leasequeue_ready r
        WHERE r.queue_id = q.id AND r.rank = j.rank AND r.lane = v.lane AND r.position = COALESCE(j.position, j.seq)
            AND r.seq = j.seq
        LIMIT 1 FOR UPDATE SKIP LOCKED) r
    UNION ALL
    SELECT u.seq, NULL, COALESCE(u.deliveries, 1), c.flags, c.token, c.part, c.node, c.deadline
    FROM c CROSS JOIN LATERAL unnest(c.seqs, c.deliveries) AS u(seq, deliveries) WHERE u.seq = ANY (%(seqs)s::bigint[])
), n AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS new_seq, j.*, s.place, s.deliveries, s.token, s.part, s.node, s.deadline, s.expired,
        s.flags & 128 <> 0 AND s.place IS NOT NULL AS told, f.workflow IS NOT NULL AS of_workflow, q.result_ttl_ms AS keep,
        target.id AS target, target.name AS target_name, target.log, target.now, target.txid, target.expires_at AS until,
        CASE WHEN s.expired THEN 'LEASE_EXPIRED' ELSE COALESCE(a.error_type, 'MAX_ATTEMPTS') END AS error_type,
        CASE WHEN s.expired THEN 'the lease expired: the worker died, hung or lost its database' ELSE a.message END AS error,
        CASE WHEN s.expired THEN 'lease_expired' ELSE COALESCE(a.fingerprint, '') END AS fingerprint,
        a.id IS NOT NULL OR s.expired
            OR EXISTS (SELECT FROM leasequeue_jobstep p WHERE p.seq = s.seq OFFSET 0) AS failed, json_strip_nulls(json_build_object('$dead_letter_from', q.name,
            '$dead_letter_deliveries', s.deliveries, '$dead_letter_src_seq', s.seq,
            '$limit', CASE WHEN f.workflow IS NULL AND f.limit_name IS NOT NULL THEN json_build_array(f.limit_name, f.limit_key) END)) AS stamp
    FROM target, q, (SELECT *, token IS NOT NULL AND %(node)s::text IS NULL AS expired FROM s) s
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = s.seq OFFSET 0) j
    LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = s.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
    LEFT JOIN LATERAL (
        SELECT m.seq AS member, m.workflow, m.state AS member_state, l.name AS limit_name, k.key AS limit_key FROM leasequeue_member m
        LEFT JOIN LATERAL (SELECT * FROM leasequeue_limitkey k WHERE k.id = m.key OFFSET 0) k ON true
        LEFT JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id OFFSET 0) l ON true
        WHERE m.seq = s.seq AND s.flags & 128 <> 0 OFFSET 0) f ON true
    WHERE j.queue_id = q.id AND COALESCE(j.max_deliveries, q.max_deliveries) BETWEEN 1 AND s.deliveries
    ORDER BY s.seq
), made AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, source_queue, source_seq, rank, max_deliveries,
        result_ttl_ms, key, name, tag, origin, data, meta, body, progress)
    SELECT n.new_seq, n.target, n.now, n.until, n.queue_id, n.seq, CASE WHEN n.log THEN n.rank ELSE 0 END,
        CASE WHEN n.log THEN n.max_deliveries END, CASE WHEN n.log THEN n.result_ttl_ms END,
        CASE WHEN %(keyed)s::bool THEN n.key END, n.name, n.tag, n.origin, n.data, CASE WHEN n.meta IS NULL THEN n.stamp
            WHEN jsonb_typeof(leasequeue_jsonb(n.meta)) = 'object' THEN (SELECT json_object_agg(m.key, m.value) FROM (
                SELECT o.key, o.value FROM json_each(n.meta) AS o WHERE (n.stamp -> o.key) IS NULL
                UNION ALL SELECT o.key, o.value FROM json_each(n.stamp) AS o) m)
            ELSE (SELECT json_object_agg(m.key, m.value) FROM (SELECT o.key, o.value FROM json_each(n.stamp) AS o
                UNION ALL SELECT '$meta', n.meta) m) END, n.body, n.progress
    FROM n ORDER BY n.key, n.new_seq
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq
), m AS MATERIALIZED (
    SELECT n.* FROM n WHERE n.new_seq = ANY (ARRAY(SELECT seq FROM made))
), objects AS (
    UPDATE leasequeue_largeobject SET seq = {renumbered(new_seq, m)} WHERE seq = ANY (ARRAY(SELECT seq FROM m))
), steps AS (
    UPDATE leasequeue_jobstep SET seq = {renumbered(new_seq, m)} WHERE seq = ANY (ARRAY(SELECT seq FROM m))
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, expires_at, tag)
    SELECT m.target, 0, 2, m.new_seq, m.new_seq, 0, 4 + 8 * m.failed::int + 64 * (COALESCE(pg_column_size(m.data), 0) > 16384 OR {bytes(m)} > 16384)::int, m.now, m.until, m.tag FROM m WHERE NOT m.log
), records AS (
    INSERT INTO leasequeue_record (queue_id, seq, expires_at, tag) SELECT m.target, m.new_seq, m.until, m.tag FROM m WHERE m.log
), dead_letters AS (
    INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, deliveries, in_place, error_type, error, fingerprint)
    SELECT m.new_seq, m.target, m.now, m.deliveries, false, m.error_type, m.error, m.fingerprint FROM m
), forgotten AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM m))
), followed AS (
    UPDATE leasequeue_attempt SET queue_id = %(target)s::bigint, seq = {renumbered(new_seq, m)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM m))
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT m.new_seq, m.target, m.now, m.deliveries, m.node, m.error_type, m.error, '', m.fingerprint FROM m WHERE m.expired
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM m WHERE place IS NOT NULL))
), turns AS (
    -- Those that were leased are noted by the trigger of the claims.
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT %(queue)s::bigint, 'epoch', 2, array_agg(m.seq) FROM m WHERE m.told HAVING count(*) > 0
), gone AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE NOT of_workflow)) AND {removing()}
), keyless AS (
    UPDATE leasequeue_job SET key = NULL
    WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE of_workflow))
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, finished_at, expires_at, deliveries, state, error_type, error, fingerprint)
    SELECT m.seq, m.queue_id, m.now, m.now + GREATEST(COALESCE(m.result_ttl_ms, m.keep), 86400000) * interval '1 ms', m.deliveries, 2,
        m.error_type, m.error, m.fingerprint FROM m WHERE m.of_workflow ON CONFLICT DO NOTHING
), rest AS MATERIALIZED (
    SELECT c.token, c.part, array_agg(u.seq ORDER BY u.n) FILTER (WHERE NOT u.out) AS seqs,
        array_agg(u.deliveries ORDER BY u.n) FILTER (WHERE NOT u.out) AS deliveries
    FROM c CROSS JOIN LATERAL (
        SELECT u.*, u.seq = ANY (ARRAY(SELECT seq FROM m WHERE token IS NOT NULL)) AS out
        FROM unnest(c.seqs, c.deliveries) WITH ORDINALITY AS u(seq, deliveries, n)) u
    GROUP BY c.token, c.part
), ended AS (
    DELETE FROM leasequeue_claim k USING rest
    WHERE k.token = ANY (ARRAY(SELECT token FROM rest)) AND k.token = rest.token AND k.part = rest.part AND rest.seqs IS NULL
), shrunk AS (
    UPDATE leasequeue_claim k SET seqs = rest.seqs, deliveries = CASE WHEN k.deliveries IS NOT NULL THEN rest.deliveries END
    FROM rest WHERE k.token = ANY (ARRAY(SELECT token FROM rest)) AND k.token = rest.token AND k.part = rest.part
        AND cardinality(rest.seqs) < cardinality(k.seqs)
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT o.id, 0 FROM target o WHERE NOT o.log AND EXISTS (SELECT FROM m)
        AND NOT EXISTS (SELECT FROM leasequeue_queuerank k WHERE k.queue_id = o.id AND k.rank = 0)
), head AS (
    {note_highest(SELECT m.queue_id, m.now, max(m.seq) AS high FROM m GROUP BY m.queue_id, m.now)}
), counted AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + (SELECT count(*) FROM m)
    WHERE q.id = %(queue)s AND EXISTS (SELECT FROM m)
), uncounted AS (
    UPDATE leasequeue_topicstate SET records = NULL, bytes = NULL WHERE queue_id = %(target)s::bigint AND records IS NOT NULL
        AND EXISTS (SELECT FROM m)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs, deliveries,
        detail)
    SELECT e.txid, e.now, e.queue_id, e.token, e.deadline, min(e.seq), max(e.seq), e.kind, e.node, e.name,
        array_agg(e.seq ORDER BY e.seq), array_agg(e.deliveries ORDER BY e.seq), e.detail
    FROM (SELECT m.*, CASE WHEN m.expired THEN 7 ELSE 4 END AS kind, CASE WHEN NOT m.expired THEN
            jsonb_build_object('error_type', m.error_type, 'fingerprint', m.fingerprint) END AS detail
        FROM m WHERE m.token IS NOT NULL
        UNION ALL
        SELECT m.*, 8, jsonb_build_object('error_type', m.error_type, 'fingerprint', m.fingerprint, 'to', m.target_name,
            'to_seq', m.new_seq) FROM m) e
    GROUP BY e.txid, e.now, e.queue_id, e.token, e.deadline, e.kind, e.node, e.name, e.detail
    ORDER BY e.kind
), wake AS MATERIALIZED (
    SELECT {wake(target.id)} AS sent FROM target WHERE EXISTS (SELECT FROM m)
)
SELECT m.seq, m.key, m.name, m.deliveries, m.new_seq, (SELECT sent FROM wake),
    CASE WHEN m.reply_to IS NOT NULL THEN {tell_callers(m, 2)} END
FROM m
UNION ALL
SELECT n.seq, n.key, n.name, n.deliveries, NULL, NULL, NULL FROM n
WHERE n.key IS NOT NULL AND n.new_seq <> ALL (ARRAY(SELECT seq FROM made))
