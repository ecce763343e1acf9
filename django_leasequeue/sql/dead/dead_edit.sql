-- Purpose: retry one dead letter with other data: a new job in its queue (a dead letter of a dead-letter topic: in the queue that
--   it came from) takes its place and names it as its source. The old one is remembered as cancelled, with its data.
--   The new one has its limit and its place in a workflow: a turn tells its number.
-- Parameters: project, queue (where the dead letter is), seq, dead_at (the death that was seen), data (JSON), now.
-- Index: leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_job_key, leasequeue_record_pkey, leasequeue_ready_pkey,
--   leasequeue_attempt_job, leasequeue_floor_place, leasequeue_rank_place, leasequeue_member_pkey, leasequeue_limitkey_pkey,
--   leasequeue_limit_pkey.
-- Pages: 190
-- Returns: new seq (null: nothing was done), queue of the new job, and why nothing was done: gone (or another transaction is
--   changing it), no_home, key_taken; then the key, if that is it.
WITH q AS MATERIALIZED (
    SELECT id, {now()} AS now, pg_current_xact_id()::text::bigint AS txid
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), s AS MATERIALIZED (
    SELECT j.*, d.in_place, d.deliveries, d.error_type, d.error, d.fingerprint, p.place, p.state, q.now, q.txid,
        CASE WHEN d.in_place THEN j.queue_id ELSE j.source_queue END AS home, f.limit_name, f.limit_key, f.node, f.member
    FROM q CROSS JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = %(seq)s::bigint AND d.queue_id + 0 = q.id
        AND d.dead_at + interval '0' = %(dead_at)s::timestamptz OFFSET 0) d
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = %(seq)s::bigint OFFSET 0) j
    {dead_member(CASE WHEN d.in_place THEN j.seq ELSE j.source_seq END)}
    {dead_place(q.id, j.seq, l.dead_at + interval '0' = d.dead_at, COALESCE(j.position, j.seq))}
    -- Until its workflow knows of its death its place cannot be given to another number.
    WHERE i.workflow IS NULL OR i.state = 2
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
    SELECT n.*, (n.reply_to IS NOT NULL)::int + 2 * (n.result_ttl_ms IS NOT NULL)::int
        + 64 * (octet_length(%(data)s::text) + COALESCE(octet_length(n.meta::text), 0) + COALESCE(octet_length(n.body), 0) > 16384)::int
        + 8 * (EXISTS (SELECT FROM leasequeue_attempt a WHERE a.seq = n.seq OFFSET 0))::int AS flags FROM n, made
), cleared AS (
    UPDATE leasequeue_job j SET key = NULL FROM m WHERE j.seq = %(seq)s::bigint AND j.queue_id <> m.target
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, tag)
    SELECT m.target, m.rank, 2, m.new_seq, m.new_seq, 0, m.flags, m.now, m.max_deliveries, m.tag FROM m WHERE NOT m.member
), delayed AS (
    -- A member goes by way of the delayed ones: its limit or workflow says when it may start.
    INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, tag)
    SELECT m.new_seq, m.target, m.now, 0, m.rank, m.flags + 128, m.max_deliveries, m.tag FROM m WHERE m.member
), joins AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs, detail)
    SELECT m.target, 'epoch', 1, ARRAY[m.new_seq], jsonb_build_object('limits', '[]'::jsonb,
        'names', jsonb_build_array(m.limit_name), 'keys', jsonb_build_array(m.limit_key))
    FROM m WHERE m.node IS NULL AND m.limit_name IS NOT NULL
), follows AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key, seqs)
    SELECT m.target, 'epoch', 5, m.node, ARRAY[m.node, m.new_seq] FROM m WHERE m.node IS NOT NULL
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM m)) AND workflow IS NULL
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
    {note_highest(SELECT m.queue_id, m.seq AS high, m.now FROM m)}
), uncounted AS (
    UPDATE leasequeue_topicstate s SET records = NULL, bytes = NULL FROM m
    WHERE s.queue_id = ANY (ARRAY[m.queue_id, m.target]) AND s.records IS NOT NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT m.txid, m.now, m.queue_id, m.seq, m.seq, 9, m.name, ARRAY[m.seq],
        jsonb_build_object('to', target.name, 'to_seq', m.new_seq, 'edited', true) FROM m, target
    UNION ALL
    SELECT m.txid, m.now, m.target, m.new_seq, m.new_seq, 1, m.name, ARRAY[m.new_seq],
        jsonb_strip_nulls(jsonb_build_object('redriven_from', m.seq, 'edited', true, 'tags', leasequeue_tags(m.meta))) FROM m
), wake AS MATERIALIZED (
    SELECT {wake(m.target)} AS sent FROM m
)
SELECT m.new_seq, target.name, NULL, NULL, (SELECT sent FROM wake) FROM m, target
UNION ALL
SELECT NULL, target.name, CASE WHEN s.seq IS NULL THEN 'gone' WHEN target.id IS NULL THEN 'no_home' ELSE 'key_taken' END, s.key, NULL
FROM q LEFT JOIN s ON true LEFT JOIN target ON true WHERE NOT EXISTS (SELECT FROM m)
