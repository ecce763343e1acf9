-- Purpose: dead-letter jobs to another topic: append to it with provenance, remove here, count, in one statement. In a
--   log a dead letter keeps its rank and its own limits for the day it goes home; in a queue it is a job like any
--   other. Meta to which nothing can be added (no object, or jsonb cannot hold it) is kept whole, as $meta. The limit
--   of a dead letter is noted there too; one of a workflow leaves a result behind, which its workflow looks at.
-- Parameters: queue (source id), target (topic id), seqs (at most 1,000); node and claims (the holder who released
--   them, and its tokens; null for jobs whose lease expired or that were met by a claim); keyed (a dead letter keeps
--   its key, and stays here if the target has it: else it goes without one); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key, leasequeue_ready_pkey, leasequeue_claim_pkey,
--   leasequeue_claim_deadline from the floor on, leasequeue_attempt_job, leasequeue_deadletter_pkey,
--   leasequeue_floor_place, leasequeue_rank_place, leasequeue_largeobject_seq, leasequeue_jobstep_pkey; of members
--   leasequeue_member_pkey, leasequeue_limitkey_pkey, leasequeue_limit_pkey. Waits for the claims of a holder; what is
--   locked otherwise is passed over.
-- Pages: 20 + 78 a row
-- Returns: the source seq, key, name, deliveries, the new seq (null: its key is taken in the target); waiting callers
--   are notified.
WITH queue AS MATERIALIZED (
    SELECT *, {now()} AS now, {txid()} AS txid FROM leasequeue_queue WHERE id = %(queue)s
), target AS MATERIALIZED (
    SELECT queue.now, queue.txid, o.id, o.name, o.type = 'log' AS log,
        CASE WHEN o.ttl_ms > 0 THEN queue.now + o.ttl_ms * interval '1 ms' END AS expires_at
    FROM queue, leasequeue_queue o WHERE o.id = %(target)s AND {not_being_deleted()}
), held AS MATERIALIZED (
    SELECT c.* FROM leasequeue_claim c
    WHERE c.token = ANY (%(claims)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE
        AND c.queue_id + 0 = %(queue)s::bigint
        AND c.seqs && %(seqs)s::bigint[]
    ORDER BY c.token, c.part FOR NO KEY UPDATE
), over AS MATERIALIZED (
    SELECT c.* FROM leasequeue_claim c
    WHERE %(node)s::text IS NULL AND c.queue_id = %(queue)s::bigint AND c.deadline < (SELECT now FROM queue)
        AND c.deadline >= {since(%(queue)s::bigint, {floor.CLAIM})}
        AND c.seqs && %(seqs)s::bigint[]
    ORDER BY c.deadline LIMIT 1000 FOR UPDATE SKIP LOCKED
), claims AS MATERIALIZED (
    SELECT * FROM held UNION ALL SELECT * FROM over
), spent AS MATERIALIZED (
    SELECT u.seq, r.place, r.deliveries, r.flags, NULL::bigint AS token, NULL::bigint AS part, NULL::text AS node,
        NULL::timestamptz AS deadline
    FROM queue CROSS JOIN unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
    CROSS JOIN (VALUES ({FRESH}::smallint), ({AGAIN}::smallint)) AS v(lane)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS place, r.deliveries, r.flags FROM leasequeue_ready r
        WHERE r.queue_id = queue.id AND r.rank = j.rank AND r.lane = v.lane AND r.position = COALESCE(j.position, j.seq)
            AND r.seq = j.seq
        LIMIT 1 FOR UPDATE SKIP LOCKED) r
    UNION ALL
    SELECT u.seq, NULL, COALESCE(u.deliveries, 1), claims.flags, claims.token, claims.part, claims.node, claims.deadline
    FROM claims CROSS JOIN LATERAL unnest(claims.seqs, claims.deliveries) AS u(seq, deliveries)
    WHERE u.seq = ANY (%(seqs)s::bigint[])
), numbered AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS new_seq, j.*, s.place, s.deliveries, s.token, s.part, s.node,
        s.deadline, s.expired, s.flags & {FLOW} <> 0 AND s.place IS NOT NULL AS told,
        f.workflow IS NOT NULL AS of_workflow, queue.result_ttl_ms AS keep, target.id AS target,
        target.name AS target_name, target.log, target.now, target.txid, target.expires_at AS until,
        CASE WHEN s.expired THEN 'LEASE_EXPIRED' ELSE COALESCE(a.error_type, 'MAX_ATTEMPTS') END AS error_type,
        CASE WHEN s.expired THEN 'the lease expired: the worker died, hung or lost its database'
            ELSE a.message END AS error,
        CASE WHEN s.expired THEN 'lease_expired' ELSE COALESCE(a.fingerprint, '') END AS fingerprint,
        a.id IS NOT NULL OR s.expired
            OR EXISTS (SELECT FROM leasequeue_jobstep p WHERE p.seq = s.seq OFFSET 0) AS failed,
        json_strip_nulls(json_build_object('$dead_letter_from', queue.name,
            '$dead_letter_deliveries', s.deliveries, '$dead_letter_src_seq', s.seq,
            '$limit', CASE WHEN f.workflow IS NULL AND f.limit_name IS NOT NULL THEN json_build_array(f.limit_name,
                f.limit_key) END)) AS stamp
    FROM target, queue, (SELECT *, token IS NOT NULL AND %(node)s::text IS NULL AS expired FROM spent) s
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = s.seq OFFSET 0 FOR UPDATE) j
    LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = s.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
    LEFT JOIN LATERAL (
        SELECT m.seq AS member, m.workflow, m.state AS member_state, l.name AS limit_name, k.key AS limit_key
        FROM leasequeue_member m
        LEFT JOIN LATERAL (SELECT * FROM leasequeue_limitkey k WHERE k.id = m.key OFFSET 0) k ON true
        LEFT JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id OFFSET 0) l ON true
        WHERE m.seq = s.seq AND s.flags & {FLOW} <> 0 OFFSET 0) f ON true
    WHERE j.queue_id = queue.id AND COALESCE(j.max_deliveries, queue.max_deliveries) BETWEEN 1 AND s.deliveries
    ORDER BY s.seq
), made AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, source_queue, source_seq, rank, max_deliveries,
        result_ttl_ms, key, name, tag, origin, data, meta, body, progress)
    SELECT numbered.new_seq, numbered.target, numbered.now, numbered.until, numbered.queue_id, numbered.seq,
        CASE WHEN numbered.log THEN numbered.rank ELSE 0 END, CASE WHEN numbered.log THEN numbered.max_deliveries END,
        CASE WHEN numbered.log THEN numbered.result_ttl_ms END, CASE WHEN %(keyed)s::bool THEN numbered.key END,
        numbered.name, numbered.tag, numbered.origin, numbered.data,
        CASE WHEN numbered.meta IS NULL THEN numbered.stamp
            WHEN jsonb_typeof(leasequeue_jsonb(numbered.meta)) = 'object' THEN (SELECT json_object_agg(m.key, m.value)
                FROM (
                SELECT o.key, o.value FROM json_each(numbered.meta) AS o WHERE (numbered.stamp -> o.key) IS NULL
                UNION ALL SELECT o.key, o.value FROM json_each(numbered.stamp) AS o) m)
            ELSE (SELECT json_object_agg(m.key, m.value) FROM (SELECT o.key, o.value FROM json_each(numbered.stamp) AS o
                UNION ALL SELECT '$meta', numbered.meta) m) END,
        numbered.body, numbered.progress
    FROM numbered ORDER BY numbered.key, numbered.new_seq
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq, {is_large(leasequeue_job)} AS large
), moved AS MATERIALIZED (
    SELECT numbered.* FROM numbered WHERE numbered.new_seq = ANY (ARRAY(SELECT seq FROM made))
), objects AS (
    UPDATE leasequeue_largeobject SET seq = {renumbered(new_seq, moved)} WHERE seq = ANY (ARRAY(SELECT seq FROM moved))
), steps AS (
    UPDATE leasequeue_jobstep SET seq = {renumbered(new_seq, moved)} WHERE seq = ANY (ARRAY(SELECT seq FROM moved))
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, expires_at, tag)
    SELECT moved.target, 0, {FRESH}, moved.new_seq, moved.new_seq, 0,
        {DEAD_LETTER} + {FAILED} * moved.failed::int + made.large, moved.now, moved.until, moved.tag
    FROM moved JOIN made ON made.seq = moved.new_seq WHERE NOT moved.log
), records AS (
    INSERT INTO leasequeue_record (queue_id, seq, expires_at, tag) SELECT target, new_seq, until, tag FROM moved
    WHERE log
), dead_letters AS (
    INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, deliveries, in_place, error_type, error, fingerprint)
    SELECT new_seq, target, now, deliveries, false, error_type, error, fingerprint FROM moved
), forgotten AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM moved))
), followed AS (
    UPDATE leasequeue_attempt SET queue_id = %(target)s::bigint, seq = {renumbered(new_seq, moved)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM moved))
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT new_seq, target, now, deliveries, node, error_type, error, '', fingerprint FROM moved WHERE expired
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM moved WHERE place IS NOT NULL))
), turns AS (
    -- Those that were leased are noted by the trigger of the claims.
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT %(queue)s::bigint, 'epoch', {turn.LOOK}, array_agg(seq) FROM moved WHERE told HAVING count(*) > 0
), gone AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM moved WHERE NOT of_workflow)) AND {removing()}
), keyless AS (
    UPDATE leasequeue_job SET key = NULL
    WHERE seq = ANY (ARRAY(SELECT seq FROM moved WHERE of_workflow))
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, finished_at, expires_at, deliveries, state, error_type, error,
        fingerprint)
    SELECT seq, queue_id, now, now + GREATEST(COALESCE(result_ttl_ms, keep), 86400000) * interval '1 ms', deliveries,
        {result.FAILED}, error_type, error, fingerprint FROM moved WHERE of_workflow ON CONFLICT DO NOTHING
), rest AS MATERIALIZED (
    SELECT claims.token, claims.part, array_agg(u.seq ORDER BY u.n) FILTER (WHERE NOT u.out) AS seqs,
        array_agg(u.deliveries ORDER BY u.n) FILTER (WHERE NOT u.out) AS deliveries
    FROM claims CROSS JOIN LATERAL (
        SELECT u.*, u.seq = ANY (ARRAY(SELECT seq FROM moved WHERE token IS NOT NULL)) AS out
        FROM unnest(claims.seqs, claims.deliveries) WITH ORDINALITY AS u(seq, deliveries, n)) u
    GROUP BY claims.token, claims.part
), ended AS (
    DELETE FROM leasequeue_claim k USING rest
    WHERE k.token = ANY (ARRAY(SELECT token FROM rest)) AND k.token = rest.token AND k.part = rest.part
        AND rest.seqs IS NULL
), shrunk AS (
    UPDATE leasequeue_claim k SET seqs = rest.seqs, deliveries = CASE
        WHEN k.deliveries IS NOT NULL THEN rest.deliveries END
    FROM rest WHERE k.token = ANY (ARRAY(SELECT token FROM rest)) AND k.token = rest.token AND k.part = rest.part
        AND cardinality(rest.seqs) < cardinality(k.seqs)
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT o.id, 0 FROM target o
    WHERE NOT o.log AND EXISTS (SELECT FROM moved)
        AND NOT EXISTS (SELECT FROM leasequeue_queuerank k WHERE k.queue_id = o.id AND k.rank = 0)
), head AS (
    {note_highest(SELECT moved.queue_id, moved.now, max(moved.seq) AS high FROM moved
        GROUP BY moved.queue_id, moved.now)}
), counted AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + (SELECT count(*) FROM moved)
    WHERE q.id = %(queue)s AND EXISTS (SELECT FROM moved)
), uncounted AS (
    UPDATE leasequeue_topicstate SET records = NULL, bytes = NULL
    WHERE queue_id = %(target)s::bigint AND records IS NOT NULL
        AND EXISTS (SELECT FROM moved)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, deadline, low, high, kind, node, name, seqs,
        deliveries, detail)
    SELECT e.txid, e.now, e.queue_id, e.token, e.deadline, min(e.seq), max(e.seq), e.kind, e.node, e.name,
        array_agg(e.seq ORDER BY e.seq), array_agg(e.deliveries ORDER BY e.seq), e.detail
    FROM (SELECT *, CASE WHEN expired THEN {event.EXPIRED} ELSE {event.RELEASED} END AS kind, CASE WHEN NOT expired THEN
            jsonb_build_object('error_type', error_type, 'fingerprint', fingerprint) END AS detail
        FROM moved WHERE token IS NOT NULL
        UNION ALL
        SELECT *, {event.DEAD_LETTERED}, jsonb_build_object('error_type', error_type, 'fingerprint', fingerprint, 'to',
            target_name, 'to_seq', new_seq) FROM moved) e
    GROUP BY e.txid, e.now, e.queue_id, e.token, e.deadline, e.kind, e.node, e.name, e.detail
    ORDER BY e.kind
), wake AS MATERIALIZED (
    SELECT {wake(target.id)} AS sent FROM target WHERE EXISTS (SELECT FROM moved)
)
SELECT moved.seq, moved.key, moved.name, moved.deliveries, moved.new_seq, (SELECT sent FROM wake),
    CASE WHEN moved.reply_to IS NOT NULL THEN {tell_callers(moved, {result.FAILED})} END
FROM moved
UNION ALL
SELECT numbered.seq, numbered.key, numbered.name, numbered.deliveries, NULL, NULL, NULL FROM numbered
WHERE numbered.key IS NOT NULL AND numbered.new_seq <> ALL (ARRAY(SELECT seq FROM made))
