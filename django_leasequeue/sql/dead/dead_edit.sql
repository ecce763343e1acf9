-- Purpose: retry one dead letter with other data: a new job in its queue (a dead letter of a dead-letter topic: in the
--   queue that it came from) takes its place and names it as its source. The old one is remembered as cancelled, with
--   its data. The new one has its limit and its place in a workflow: a turn tells its number.
-- Parameters: project, queue (where the dead letter is), seq, dead_at (the death that was seen), data (JSON), now.
-- Index: leasequeue_deadletter_pkey, leasequeue_job_pkey, leasequeue_job_key, leasequeue_record_pkey,
--   leasequeue_ready_pkey, leasequeue_attempt_job, leasequeue_floor_place, leasequeue_rank_place,
--   leasequeue_member_pkey, leasequeue_limitkey_pkey, leasequeue_limit_pkey.
-- Pages: 190
-- Returns: new seq (null: nothing was done), queue of the new job, and why nothing was done: gone (or another
--   transaction is changing it), no_home, key_taken; then the key, if that is it.
WITH queue AS MATERIALIZED (
    SELECT id, {now()} AS now, {txid()} AS txid
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), letter AS MATERIALIZED (
    SELECT j.*, d.in_place, d.deliveries, d.error_type, d.error, d.fingerprint, p.place, p.state, queue.now, queue.txid,
        CASE WHEN d.in_place THEN j.queue_id ELSE j.source_queue END AS home, f.limit_name, f.limit_key, f.node,
        f.member
    FROM queue CROSS JOIN LATERAL (SELECT * FROM leasequeue_deadletter d
        WHERE d.seq = %(seq)s::bigint AND d.queue_id + 0 = queue.id
        AND d.dead_at + interval '0' = %(dead_at)s::timestamptz OFFSET 0) d
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = %(seq)s::bigint OFFSET 0) j
    {dead_member(CASE WHEN d.in_place THEN j.seq ELSE j.source_seq END)}
    CROSS JOIN {dead_place(queue.id, j.seq, l.dead_at + interval '0' = d.dead_at, COALESCE(j.position, j.seq))}
    -- Until its workflow knows of its death its place cannot be given to another number.
    WHERE i.workflow IS NULL OR i.state = {member.FAILED}
), target AS MATERIALIZED (
    SELECT h.id, h.name, h.result_ttl_ms FROM letter JOIN leasequeue_queue h ON h.id = letter.home AND h.type = 'queue'
    -- The lock keeps the queue from deletion.
    FOR KEY SHARE OF h
), freed AS (
    UPDATE leasequeue_job j SET key = NULL FROM target WHERE j.seq = %(seq)s::bigint AND j.queue_id = target.id
    RETURNING j.seq
), numbered AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS new_seq, letter.*, target.id AS target, target.result_ttl_ms AS keep
    FROM letter, target WHERE (SELECT count(*) FROM freed) >= 0
), made AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, source_queue, source_seq, rank, max_deliveries,
        result_ttl_ms, key, name, tag, origin, reply_to, data, meta, body)
    SELECT new_seq, target, now, queue_id, seq, rank, max_deliveries, result_ttl_ms, key, name, tag,
        origin, reply_to, %(data)s::text::json, meta, body
    FROM numbered
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq, {is_large(leasequeue_job)} AS large
), edited AS MATERIALIZED (
    SELECT numbered.*, {REPLY} * (numbered.reply_to IS NOT NULL)::int
        + {RESULT_TTL} * (numbered.result_ttl_ms IS NOT NULL)::int
        + made.large + {FAILED} * (EXISTS (SELECT FROM leasequeue_attempt a
            WHERE a.seq = numbered.seq OFFSET 0))::int AS flags FROM numbered, made
), cleared AS (
    UPDATE leasequeue_job j SET key = NULL FROM edited WHERE j.seq = %(seq)s::bigint AND j.queue_id <> edited.target
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, tag)
    SELECT target, rank, {FRESH}, new_seq, new_seq, 0, flags, now, max_deliveries, tag FROM edited WHERE NOT member
), delayed AS (
    -- A member goes by way of the delayed ones: its limit or workflow says when it may start.
    INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, tag)
    SELECT new_seq, target, now, 0, rank, flags + {FLOW}, max_deliveries, tag FROM edited WHERE member
), joins AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs, detail)
    SELECT target, 'epoch', {turn.JOIN}, ARRAY[new_seq], jsonb_build_object('limits', '[]'::jsonb,
        'names', jsonb_build_array(limit_name), 'keys', jsonb_build_array(limit_key))
    FROM edited WHERE node IS NULL AND limit_name IS NOT NULL
), follows AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key, seqs)
    SELECT target, 'epoch', {turn.FOLLOW}, node, ARRAY[node, new_seq] FROM edited WHERE node IS NOT NULL
), members AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM edited)) AND workflow IS NULL
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT edited.new_seq, edited.target, a.at, a.delivery, a.node, a.error_type, a.message, a.traceback, a.fingerprint
    FROM edited, leasequeue_attempt a WHERE a.seq = %(seq)s::bigint ORDER BY a.id + 0
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM edited))
), records AS (
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(SELECT place FROM edited WHERE state = {RECORD}))
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM edited WHERE state = {READY}))
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, finished_at, expires_at, deliveries, state, result, error_type,
        error, fingerprint)
    SELECT seq, queue_id, now, now + GREATEST(COALESCE(result_ttl_ms, keep), 86400000) * interval '1 ms',
        deliveries, {result.CANCELLED}, json_build_object('edited_into', new_seq), error_type, error, fingerprint
    FROM edited ON CONFLICT DO NOTHING
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT edited.target, edited.rank FROM edited
    WHERE NOT EXISTS (SELECT FROM leasequeue_queuerank k WHERE k.queue_id = edited.target AND k.rank = edited.rank)
), head AS (
    {note_highest(SELECT edited.queue_id, edited.seq AS high, edited.now FROM edited)}
), uncounted AS (
    UPDATE leasequeue_topicstate s SET records = NULL, bytes = NULL FROM edited
    WHERE s.queue_id = ANY (ARRAY[edited.queue_id, edited.target]) AND s.records IS NOT NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT edited.txid, edited.now, edited.queue_id, edited.seq, edited.seq, {event.REDRIVEN}, edited.name,
        ARRAY[edited.seq], jsonb_build_object('to', target.name, 'to_seq', edited.new_seq, 'edited', true)
    FROM edited, target
    UNION ALL
    SELECT txid, now, target, new_seq, new_seq, {event.ENQUEUED}, name, ARRAY[new_seq],
        jsonb_strip_nulls(jsonb_build_object('redriven_from', seq, 'edited', true, 'tags', leasequeue_tags(meta)))
            FROM edited
), wake AS MATERIALIZED (
    SELECT {wake(edited.target)} AS sent FROM edited
)
SELECT edited.new_seq, target.name, NULL, NULL, (SELECT sent FROM wake) FROM edited, target
UNION ALL
SELECT NULL, target.name, CASE WHEN letter.seq IS NULL THEN 'gone' WHEN target.id IS NULL THEN 'no_home'
    ELSE 'key_taken' END, letter.key, NULL
FROM queue LEFT JOIN letter ON true LEFT JOIN target ON true WHERE NOT EXISTS (SELECT FROM edited)
