-- Purpose: dead letters back to a live queue: in place (target = their own queue) or moved; deliveries start again at 0.
--   A dead letter that goes home has its old rank. Wherever it goes it keeps its limit and its place in a workflow: a turn tells
--   its new number.
-- Parameters: project, queue (name of the dead letters' topic), target (name), seqs (at most 1,000), delays (ms, or empty); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key, leasequeue_deadletter_pkey, leasequeue_ready_pkey, leasequeue_record_pkey,
--   leasequeue_attempt_job, leasequeue_floor_place, leasequeue_rank_place,
--   leasequeue_largeobject_seq, leasequeue_jobstep_pkey, leasequeue_member_pkey, leasequeue_limitkey_pkey, leasequeue_limit_pkey. A locked dead letter is passed over.
-- Pages: 20 + 99 a row
-- Returns: seq, outcome (0 ready, 1 delayed, -1 its key is taken in the target), its new number (null: the old one), key.
WITH q AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), target AS MATERIALIZED (
    SELECT id, name, {now()} AS now, pg_current_xact_id()::text::bigint AS txid
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(target)s AND type = 'queue'
), s AS MATERIALIZED (
    SELECT i.seq, COALESCE(i.delay, 0) AS delay, p.place, p.state
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(delays)s::bigint[])) AS i(seq, delay)
    CROSS JOIN q CROSS JOIN target
    CROSS JOIN LATERAL (SELECT d.in_place FROM leasequeue_deadletter d
        WHERE d.seq = i.seq AND d.queue_id + 0 = q.id AND (d.in_place OR q.id <> target.id) OFFSET 0) d
    CROSS JOIN LATERAL (SELECT j.rank, COALESCE(j.position, j.seq) AS position FROM leasequeue_job j WHERE j.seq = i.seq OFFSET 0) j
    {dead_place(q.id, i.seq, l.in_place, j.position)}
), n AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS number, j.*, s.place, s.state, s.delay, target.id AS target, target.now,
        target.txid, j.queue_id = target.id AS stays,
        CASE WHEN j.queue_id = target.id OR j.source_queue = target.id THEN j.rank ELSE 0 END AS new_rank,
        -- A member goes by way of the delayed ones: its limit or workflow says when it may start.
        f.limit_name, f.limit_key, f.node,
        CASE WHEN s.delay > 0 OR e.member THEN target.now + s.delay * interval '1 ms' END AS due,
        (j.queue_id = target.id AND j.reply_to IS NOT NULL)::int + 2 * (j.result_ttl_ms IS NOT NULL)::int
            + 64 * (COALESCE(pg_column_size(j.data), 0) > 16384 OR {bytes(j)} > 16384)::int
            + 8 * (EXISTS (SELECT FROM leasequeue_attempt a WHERE a.seq = s.seq OFFSET 0)
                OR EXISTS (SELECT FROM leasequeue_jobstep p WHERE p.seq = s.seq OFFSET 0))::int + 128 * e.member::int AS flags
    FROM target, s CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = s.seq OFFSET 0) j
    {dead_member(CASE WHEN s.state = 3 THEN s.seq ELSE j.source_seq END)}
    CROSS JOIN LATERAL (SELECT f.member OR s.state = 3 AND i.seq IS NOT NULL AND j.queue_id = target.id AS member) e
    -- Until its workflow knows of its death its place cannot be given to another number.
    WHERE j.queue_id = target.id OR i.workflow IS NULL OR i.state = 2
    ORDER BY s.seq
), made AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, source_queue, source_seq, rank, max_deliveries, result_ttl_ms, key,
        name, tag, origin, data, meta, body, progress)
    SELECT n.number, n.target, n.now, n.queue_id, n.seq, n.new_rank, n.max_deliveries, n.result_ttl_ms, n.key, n.name, n.tag,
        n.origin, n.data, n.meta, n.body, n.progress
    FROM n WHERE NOT n.stays ORDER BY n.key, n.number
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq
), m AS MATERIALIZED (
    SELECT n.*, CASE WHEN n.stays THEN n.seq ELSE n.number END AS new_seq FROM n
    WHERE n.stays OR n.number = ANY (ARRAY(SELECT seq FROM made))
), back AS (
    UPDATE leasequeue_job SET expires_at = NULL, position = {renumbered(number, m)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE stays))
), objects AS (
    UPDATE leasequeue_largeobject SET seq = {renumbered(new_seq, m WHERE NOT stays)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE NOT stays))
), steps AS (
    UPDATE leasequeue_jobstep SET seq = {renumbered(new_seq, m WHERE NOT stays)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE NOT stays))
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, tag)
    SELECT m.target, m.new_rank, 2, m.number, m.new_seq, 0, m.flags, m.now, m.max_deliveries, m.tag FROM m WHERE m.due IS NULL
), delayed AS (
    INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, tag)
    SELECT m.new_seq, m.target, m.due, 0, m.new_rank, m.flags, m.max_deliveries, m.tag FROM m WHERE m.due IS NOT NULL
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM m))
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(SELECT place FROM m WHERE state = 4))
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM m WHERE state = 0))
), joins AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs, detail)
    SELECT m.target, 'epoch', 1, array_agg(m.number ORDER BY m.number), jsonb_build_object('limits', '[]'::jsonb,
        'names', jsonb_agg(m.limit_name ORDER BY m.number), 'keys', jsonb_agg(m.limit_key ORDER BY m.number))
    FROM m WHERE NOT m.stays AND m.node IS NULL AND m.limit_name IS NOT NULL GROUP BY m.target
), follows AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key, seqs)
    SELECT m.target, 'epoch', 5, m.node, ARRAY[m.node, m.number] FROM m WHERE NOT m.stays AND m.node IS NOT NULL
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE NOT stays)) AND workflow IS NULL
), gone AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE NOT stays)) AND {removing()}
), followed AS (
    UPDATE leasequeue_attempt SET queue_id = (SELECT id FROM target), seq = {renumbered(number, m)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM m WHERE NOT stays))
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT DISTINCT m.target, m.new_rank FROM m
    WHERE NOT EXISTS (SELECT FROM leasequeue_queuerank k WHERE k.queue_id = m.target AND k.rank = m.new_rank)
), head AS (
    {note_highest(SELECT queue_id, max(seq) AS high, max(now) AS now FROM m WHERE NOT stays GROUP BY queue_id)}
), uncounted AS (
    UPDATE leasequeue_topicstate SET records = NULL, bytes = NULL WHERE records IS NOT NULL AND queue_id = ANY (ARRAY(
        SELECT queue_id FROM m WHERE NOT stays UNION SELECT target FROM m))
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT e.txid, e.now, e.queue_id, min(e.seq), max(e.seq), e.kind, e.name, array_agg(e.seq ORDER BY e.seq), e.detail
    FROM (SELECT m.txid, m.now, m.queue_id, m.seq, 9 AS kind, m.name, CASE WHEN NOT m.stays THEN
            jsonb_build_object('to', target.name, 'to_seq', m.new_seq) END AS detail FROM m, target
        UNION ALL
        SELECT m.txid, m.now, m.target, m.new_seq, 1, m.name,
            jsonb_strip_nulls(jsonb_build_object('redriven_from', m.seq, 'tags', leasequeue_tags(m.meta))) FROM m
        WHERE NOT m.stays) e
    GROUP BY e.txid, e.now, e.queue_id, e.kind, e.name, e.detail
), wake AS MATERIALIZED (
    SELECT {wake(target.id)} AS sent FROM target WHERE EXISTS (SELECT FROM m WHERE due IS NULL OR delay = 0)
)
SELECT m.seq, CASE WHEN m.due IS NULL OR m.delay = 0 THEN 0 ELSE 1 END, CASE WHEN NOT m.stays THEN m.number END, m.key, (SELECT sent FROM wake)
FROM m
UNION ALL
SELECT n.seq, -1, NULL, n.key, NULL FROM n
WHERE NOT n.stays AND n.key IS NOT NULL AND n.number <> ALL (ARRAY(SELECT seq FROM made))
