-- Purpose: retry one dead letter with other data: a new job in its queue (a dead letter of a dead-letter topic: in the queue that
--   it came from) takes its place and names it as its source. The old one is remembered as cancelled, with its data.
-- Parameters: project, queue (where the dead letter is), seq, dead_at (the death that was seen), data (JSON), now.
-- Index: leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_job_key, leasequeue_record_pkey, leasequeue_ready_pkey,
--   leasequeue_attempt_job, leasequeue_floor_place, leasequeue_rank_place.
-- Pages: 170
-- Returns: new seq (null: nothing was done), queue of the new job, and why nothing was done: gone (or another transaction is
--   changing it), no_home, key_taken; then the key, if that is it.
WITH q AS MATERIALIZED (
    SELECT id, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, pg_current_xact_id()::text::bigint AS txid
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), s AS MATERIALIZED (
    SELECT j.*, d.in_place, d.deliveries, d.error_type, d.error, d.fingerprint, p.place, p.state, q.now, q.txid,
        CASE WHEN d.in_place THEN j.queue_id ELSE j.source_queue END AS home
    FROM q CROSS JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = %(seq)s::bigint AND d.queue_id + 0 = q.id
        AND d.dead_at + interval '0' = %(dead_at)s::timestamptz OFFSET 0) d
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = %(seq)s::bigint OFFSET 0) j
    CROSS JOIN LATERAL (
        SELECT * FROM (SELECT l.ctid AS place, 3 AS state FROM leasequeue_deadletter l
            WHERE d.in_place AND l.seq = j.seq AND l.dead_at + interval '0' = d.dead_at FOR UPDATE SKIP LOCKED) a
        UNION ALL
        SELECT * FROM (SELECT o.ctid, 4 FROM leasequeue_record o
            WHERE NOT d.in_place AND o.queue_id = q.id AND o.seq = j.seq FOR UPDATE SKIP LOCKED) b
        UNION ALL
        SELECT c.* FROM (VALUES (2::smallint), (1::smallint)) AS v(lane) CROSS JOIN LATERAL (
            SELECT r.ctid, 0 FROM leasequeue_ready r WHERE NOT d.in_place AND r.queue_id = q.id AND r.rank = j.rank
                AND r.lane = v.lane AND r.position = COALESCE(j.position, j.seq) AND r.seq = j.seq FOR UPDATE SKIP LOCKED) c
        LIMIT 1) p
), target AS MATERIALIZED (
    SELECT h.id, h.name, h.result_ttl_ms FROM s JOIN leasequeue_queue h ON h.id = s.home AND h.type = 'queue'
), freed AS (
    UPDATE leasequeue_job j SET key = NULL FROM target WHERE j.seq = %(seq)s::bigint AND j.queue_id = target.id RETURNING j.seq
), n AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS new_seq, s.*, target.id AS target, target.result_ttl_ms AS keep
    FROM s, target WHERE (SELECT count(*) FROM freed) >= 0
), made AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, source_queue, source_seq, rank, max_deliveries, result_ttl_ms, key,
        name, tag, origin, reply_to, data, meta, body)
    SELECT n.new_seq, n.target, n.now, n.queue_id, n.seq, n.rank, n.max_deliveries, n.result_ttl_ms, n.key, n.name, n.tag,
        n.origin, n.reply_to, %(data)s::text::json, n.meta, n.body
    FROM n
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq
), m AS MATERIALIZED (
    SELECT n.* FROM n, made
), cleared AS (
    UPDATE leasequeue_job j SET key = NULL FROM m WHERE j.seq = %(seq)s::bigint AND j.queue_id <> m.target
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, tag)
    SELECT m.target, m.rank, 2, m.new_seq, m.new_seq, 0, (m.reply_to IS NOT NULL)::int + 2 * (m.result_ttl_ms IS NOT NULL)::int
        + 8 * (EXISTS (SELECT FROM leasequeue_attempt a WHERE a.seq = m.seq OFFSET 0))::int, m.now, m.max_deliveries, m.tag
    FROM m
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT m.new_seq, m.target, a.at, a.delivery, a.node, a.error_type, a.message, a.traceback, a.fingerprint
    FROM m, leasequeue_attempt a WHERE a.seq = %(seq)s::bigint ORDER BY a.id + 0
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM m))
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(SELECT place FROM m WHERE state = 4))
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM m WHERE state = 0))
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, finished_at, expires_at, deliveries, state, result, error_type, error,
        fingerprint)
    SELECT m.seq, m.queue_id, m.now, m.now + GREATEST(COALESCE(m.result_ttl_ms, m.keep), 86400000) * interval '1 ms',
        m.deliveries, 3, json_build_object('edited_into', m.new_seq), m.error_type, m.error, m.fingerprint
    FROM m ON CONFLICT DO NOTHING
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT m.target, m.rank FROM m
    WHERE NOT EXISTS (SELECT FROM leasequeue_queuerank k WHERE k.queue_id = m.target AND k.rank = m.rank)
), head AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at) SELECT m.queue_id, 3, 0, m.seq, m.now FROM m
    WHERE m.seq > COALESCE((SELECT f.value FROM leasequeue_queuefloor f
        WHERE f.queue_id = m.queue_id AND f.kind = 3 AND f.rank = 0 ORDER BY f.value DESC LIMIT 1), 0)
), uncounted AS (
    UPDATE leasequeue_topicstate s SET records = NULL, bytes = NULL FROM m
    WHERE s.queue_id = ANY (ARRAY[m.queue_id, m.target]) AND s.records IS NOT NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT m.txid, m.now, m.queue_id, m.seq, m.seq, 9, m.name, ARRAY[m.seq],
        jsonb_build_object('to', target.name, 'to_seq', m.new_seq, 'edited', true) FROM m, target
    UNION ALL
    SELECT m.txid, m.now, m.target, m.new_seq, m.new_seq, 1, m.name, ARRAY[m.new_seq],
        jsonb_build_object('redriven_from', m.seq, 'edited', true) FROM m
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, m.target::int)
        THEN pg_advisory_unlock(1280657731, m.target::int)::text
        ELSE pg_notify('leasequeue', 'q' || m.target)::text END AS sent
    FROM m
)
SELECT m.new_seq, target.name, NULL, NULL, (SELECT sent FROM wake) FROM m, target
UNION ALL
SELECT NULL, target.name, CASE WHEN s.seq IS NULL THEN 'gone' WHEN target.id IS NULL THEN 'no_home' ELSE 'key_taken' END, s.key, NULL
FROM q LEFT JOIN s ON true LEFT JOIN target ON true WHERE NOT EXISTS (SELECT FROM m)
