-- Purpose: add jobs to a queue, or records to a log. A key must not exist twice: one that is taken adds nothing. Keys
--   go in order, so that two batches with the same keys cannot deadlock.
-- Parameters: project, queue, numbers (1 to the number of jobs: an array, whose guessed length lets PostgreSQL keep one
--   generic plan), origin, locked (the caller holds cap_lock), held (it
--   holds queue_hold); arrays of that length or empty: keys, names, tags, priorities,
--   datas, metas, bodies, run_at, delays, ttls, reply_to, result_ttls, max_deliveries, origins, flows (flags), id_ends
--   (the key is made of the number and this), tagged (tags, in meta too, as JSON); now, autocommit, alone.
-- Index: leasequeue_queue_name, leasequeue_job_key, leasequeue_rank_place; else inserts only.
-- Pages: 50 + 17 a row
-- Returns, in input order: seq of the new job (null: its key is taken, see key_taken.sql), its state, the time; waking;
--   the id of a queue with a cap whose lock is not held (nothing was added: take it and come again).
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH queue AS MATERIALIZED (
    SELECT *, {txid()} AS txid, {now()} AS now, {lazily(durability <> 'fsync')},
        CASE priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END AS turn
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s AND (%(held)s::bool OR {not_being_deleted()})
), asked AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS seq, u.*,
        queue.turn * LEAST(GREATEST(COALESCE(u.priority, 0), queue.priority_min), queue.priority_max) AS rank,
        CASE WHEN COALESCE(u.ttl, queue.ttl_ms) > 0 THEN queue.now + COALESCE(u.ttl,
            queue.ttl_ms) * interval '1 ms' END AS expires_at,
        COALESCE(u.run_at, queue.now + u.delay * interval '1 ms') AS due,
        {REPLY} * (u.reply_to IS NOT NULL)::int + {RESULT_TTL} * (u.result_ttl IS NOT NULL)::int + {is_large(u)}
            + COALESCE(u.flow, 0) AS flags
    FROM queue, ROWS FROM (
        unnest(%(numbers)s::int[]),
        unnest(%(keys)s::text[]), unnest(%(names)s::text[]), unnest(%(tags)s::text[]),
        unnest(%(priorities)s::int[]), unnest(%(datas)s::text[]), unnest(%(metas)s::text[]),
        unnest(%(bodies)s::bytea[]), unnest(%(run_at)s::timestamptz[]), unnest(%(delays)s::bigint[]),
        unnest(%(ttls)s::bigint[]), unnest(%(reply_to)s::text[]), unnest(%(result_ttls)s::bigint[]),
        unnest(%(max_deliveries)s::int[]), unnest(%(origins)s::text[]), unnest(%(flows)s::int[]),
            unnest(%(id_ends)s::text[]),
        unnest(%(tagged)s::text[])
    ) AS u(n, key, name, tag, priority, data, meta, body, run_at, delay, ttl, reply_to, result_ttl, max_deliveries,
        origin,
        flow, id_end, tagged)
), made AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, rank, generated, key, name, tag, data, meta,
        body, reply_to, result_ttl_ms, max_deliveries, origin)
    SELECT asked.seq, queue.id, queue.now, asked.expires_at, asked.rank, asked.id_end IS NOT NULL,
        COALESCE(asked.key, leasequeue_job_id(asked.seq, asked.id_end)), asked.name, asked.tag, asked.data::json,
        asked.meta::json, asked.body, asked.reply_to, asked.result_ttl, asked.max_deliveries,
        COALESCE(asked.origin, %(origin)s::text)
    FROM asked, queue WHERE %(locked)s::bool OR GREATEST(queue.cap_records, queue.cap_bytes) = 0
    ORDER BY asked.key, asked.n
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq
), new AS MATERIALIZED (
    SELECT asked.*, CASE WHEN queue.type = 'log' THEN {RECORD} WHEN asked.due > queue.now THEN {DELAYED}
        ELSE {READY} END AS state
    FROM made JOIN asked ON asked.seq = made.seq, queue
), ready AS (
    {into_ready()}
    SELECT queue.id, n.rank, {FRESH}, n.seq, n.seq, 0, n.flags, queue.now, n.max_deliveries, n.expires_at, n.tag
    FROM new n, queue WHERE n.state = {READY}
), delayed AS (
    {into_delayed()}
    SELECT n.seq, queue.id, n.due, 0, n.rank, n.flags, n.max_deliveries, n.expires_at, n.tag FROM new n, queue
    WHERE n.state = {DELAYED}
), records AS (
    INSERT INTO leasequeue_record (queue_id, seq, expires_at, tag)
    SELECT queue.id, n.seq, n.expires_at, n.tag FROM new n, queue WHERE n.state = {RECORD}
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank)
    SELECT DISTINCT queue.id, n.rank FROM new n, queue WHERE n.state <> {RECORD} AND NOT EXISTS (
        SELECT FROM leasequeue_queuerank k WHERE k.queue_id = queue.id AND k.rank = n.rank)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT queue.txid, queue.now, queue.id, min(n.seq), max(n.seq), {event.ENQUEUED}, n.name, array_agg(n.seq),
        CASE WHEN n.tagged IS NOT NULL THEN jsonb_build_object('tags', n.tagged::jsonb) END
    FROM new n, queue WHERE queue.log_enqueued AND n.state <> {RECORD}
    GROUP BY queue.txid, queue.now, queue.id, n.name, n.tagged, (n.n - 1) / 1000
), wake AS MATERIALIZED (
    SELECT {wake(queue.id)} AS sent FROM queue WHERE EXISTS (SELECT FROM new WHERE state <> {DELAYED})
)
SELECT n.seq, n.state, queue.now, (SELECT sent FROM wake),
    CASE WHEN NOT %(locked)s::bool AND GREATEST(queue.cap_records, queue.cap_bytes) > 0 THEN queue.id END
FROM queue, asked LEFT JOIN new n ON n.seq = asked.seq ORDER BY asked.n
