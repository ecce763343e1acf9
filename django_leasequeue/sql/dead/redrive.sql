-- Purpose: dead letters back to a live queue: in place (target = their own queue) or moved; deliveries start again at
--   0. A dead letter that goes home has its old rank. Wherever it goes it keeps its limit and its place in a workflow:
--   a turn tells its new number.
-- Parameters: project, queue (name of the dead letters' topic), target (name; the caller has queue_hold of another
--   one), seqs (at most 1,000), delays (ms, or empty); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key, leasequeue_deadletter_pkey, leasequeue_ready_pkey,
--   leasequeue_record_pkey, leasequeue_attempt_job, leasequeue_floor_place, leasequeue_rank_place,
--   leasequeue_largeobject_seq, leasequeue_jobstep_pkey, leasequeue_member_pkey, leasequeue_limitkey_pkey,
--   leasequeue_limit_pkey. A locked dead letter is passed over.
-- Pages: 20 + 99 a row
-- Returns: seq, outcome (a JobState: ready or delayed; -1: its key is taken in the target), its new number (null: the
--   old one), key.
WITH source AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), target AS MATERIALIZED (
    SELECT id, name, {now()} AS now, {txid()} AS txid
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(target)s AND type = 'queue'
), letters AS MATERIALIZED (
    SELECT i.seq, COALESCE(i.delay, 0) AS delay, p.place, p.state
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(delays)s::bigint[])) AS i(seq, delay)
    CROSS JOIN source CROSS JOIN target
    CROSS JOIN LATERAL (SELECT d.in_place FROM leasequeue_deadletter d
        WHERE d.seq = i.seq AND d.queue_id + 0 = source.id AND (d.in_place OR source.id <> target.id) OFFSET 0) d
    CROSS JOIN LATERAL (SELECT j.rank, COALESCE(j.position, j.seq) AS position FROM leasequeue_job j
        WHERE j.seq = i.seq OFFSET 0) j
    CROSS JOIN {dead_place(source.id, i.seq, l.in_place, j.position)}
), numbered AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS number, j.*, letters.place, letters.state, letters.delay,
        target.id AS target, target.now, target.txid, j.queue_id = target.id AS stays,
        CASE WHEN j.queue_id = target.id OR j.source_queue = target.id THEN j.rank ELSE 0 END AS new_rank,
        -- A member goes by way of the delayed ones: its limit or workflow says when it may start.
        f.limit_name, f.limit_key, f.node,
        CASE WHEN letters.delay > 0 OR e.member THEN target.now + letters.delay * interval '1 ms' END AS due,
        {REPLY} * (j.queue_id = target.id
            AND j.reply_to IS NOT NULL)::int + {RESULT_TTL} * (j.result_ttl_ms IS NOT NULL)::int
            + {is_large(j)}
            + {FAILED} * (EXISTS (SELECT FROM leasequeue_attempt a WHERE a.seq = letters.seq OFFSET 0)
                OR EXISTS (SELECT FROM leasequeue_jobstep p
                    WHERE p.seq = letters.seq OFFSET 0))::int + {FLOW} * e.member::int AS flags
    FROM target, letters CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = letters.seq OFFSET 0) j
    {dead_member(CASE WHEN letters.state = {DEAD} THEN letters.seq ELSE j.source_seq END)}
    CROSS JOIN LATERAL (SELECT f.member OR letters.state = {DEAD} AND i.seq IS NOT NULL
        AND j.queue_id = target.id AS member) e
    -- Until its workflow knows of its death its place cannot be given to another number.
    WHERE j.queue_id = target.id OR i.workflow IS NULL OR i.state = {member.FAILED}
    ORDER BY letters.seq
), made AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, source_queue, source_seq, rank, max_deliveries,
        result_ttl_ms, key, name, tag, origin, data, meta, body, progress)
    SELECT number, target, now, queue_id, seq, new_rank, max_deliveries, result_ttl_ms, key, name, tag,
        origin, data, meta, body, progress
    FROM numbered WHERE NOT stays ORDER BY numbered.key, numbered.number
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq
), redriven AS MATERIALIZED (
    SELECT numbered.*, CASE WHEN numbered.stays THEN numbered.seq ELSE numbered.number END AS new_seq FROM numbered
    WHERE numbered.stays OR numbered.number = ANY (ARRAY(SELECT seq FROM made))
), back AS (
    UPDATE leasequeue_job SET expires_at = NULL, first_claimed_at = NULL, position = {renumbered(number, redriven)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM redriven WHERE stays))
), objects AS (
    UPDATE leasequeue_largeobject SET seq = {renumbered(new_seq, redriven WHERE NOT stays)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM redriven WHERE NOT stays))
), steps AS (
    UPDATE leasequeue_jobstep SET seq = {renumbered(new_seq, redriven WHERE NOT stays)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM redriven WHERE NOT stays))
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, tag)
    SELECT target, new_rank, {FRESH}, number, new_seq, 0, flags, now, max_deliveries, tag FROM redriven
    WHERE due IS NULL
), delayed AS (
    INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, tag)
    SELECT new_seq, target, due, 0, new_rank, flags, max_deliveries, tag FROM redriven WHERE due IS NOT NULL
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM redriven))
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(SELECT place FROM redriven WHERE state = {RECORD}))
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM redriven WHERE state = {READY}))
), joins AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs, detail)
    SELECT target, 'epoch', {turn.JOIN}, array_agg(number ORDER BY number), jsonb_build_object('limits', '[]'::jsonb,
        'names', jsonb_agg(limit_name ORDER BY number), 'keys', jsonb_agg(limit_key ORDER BY number))
    FROM redriven WHERE NOT stays AND node IS NULL AND limit_name IS NOT NULL GROUP BY target
), follows AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key, seqs)
    SELECT target, 'epoch', {turn.FOLLOW}, node, ARRAY[node, number] FROM redriven WHERE NOT stays AND node IS NOT NULL
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM redriven WHERE NOT stays)) AND workflow IS NULL
), gone AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM redriven WHERE NOT stays)) AND {removing()}
), followed AS (
    UPDATE leasequeue_attempt SET queue_id = (SELECT id FROM target), seq = {renumbered(number, redriven)}
    WHERE seq = ANY (ARRAY(SELECT seq FROM redriven WHERE NOT stays))
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT DISTINCT redriven.target, redriven.new_rank FROM redriven
    WHERE NOT EXISTS (SELECT FROM leasequeue_queuerank k WHERE k.queue_id = redriven.target
        AND k.rank = redriven.new_rank)
), head AS (
    {note_highest(SELECT queue_id, max(seq) AS high, max(now) AS now FROM redriven WHERE NOT stays GROUP BY queue_id)}
), uncounted AS (
    UPDATE leasequeue_topicstate SET records = NULL, bytes = NULL WHERE records IS NOT NULL AND queue_id = ANY (ARRAY(
        SELECT queue_id FROM redriven WHERE NOT stays UNION SELECT target FROM redriven))
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT e.txid, e.now, e.queue_id, min(e.seq), max(e.seq), e.kind, e.name, array_agg(e.seq ORDER BY e.seq), e.detail
    FROM (SELECT redriven.txid, redriven.now, redriven.queue_id, redriven.seq, {event.REDRIVEN} AS kind, redriven.name,
        CASE WHEN NOT redriven.stays THEN
            jsonb_build_object('to', target.name, 'to_seq', redriven.new_seq) END AS detail FROM redriven, target
        UNION ALL
        SELECT txid, now, target, new_seq, {event.ENQUEUED}, name,
            jsonb_strip_nulls(jsonb_build_object('redriven_from', seq, 'tags', leasequeue_tags(meta))) FROM redriven
        WHERE NOT stays) e
    GROUP BY e.txid, e.now, e.queue_id, e.kind, e.name, e.detail
), wake AS MATERIALIZED (
    SELECT {wake(target.id)} AS sent FROM target WHERE EXISTS (SELECT FROM redriven WHERE due IS NULL OR delay = 0)
)
SELECT redriven.seq, CASE WHEN redriven.due IS NULL OR redriven.delay = 0 THEN {READY} ELSE {DELAYED} END, CASE
    WHEN NOT redriven.stays THEN redriven.number END, redriven.key, (SELECT sent FROM wake)
FROM redriven
UNION ALL
SELECT numbered.seq, -1, NULL, numbered.key, NULL FROM numbered
WHERE NOT numbered.stays AND numbered.key IS NOT NULL AND numbered.number <> ALL (ARRAY(SELECT seq FROM made))
