-- Purpose: add jobs to a queue, or records to a log. A key must not exist twice: one that is taken adds nothing. Keys go in
--   order, so that two batches with the same keys cannot deadlock.
-- Parameters: project, queue, numbers (1 to the number of jobs: an array, whose guessed length lets PostgreSQL keep one
--   generic plan), origin, locked (the caller holds cap_lock), held (it
--   holds queue_hold); arrays of that length or empty: keys, names, tags, priorities,
--   datas, metas, bodies, run_at, delays, ttls, reply_to, result_ttls, max_deliveries, origins, flows (flags), id_ends (the key is made
--   of the number and this), tagged (tags, in meta too, as JSON); now, autocommit.
-- A session that deletes an empty queue locks its row, which shows in xmax at once, and then waits for all who write jobs: who sees
--   that, or any other change that is not past, adds nothing. (What is older than pg_snapshot_xmin is past.)
-- Index: leasequeue_queue_name, leasequeue_job_key, leasequeue_rank_place; else inserts only.
-- Pages: 50 + 17 a row
-- Host: inserts, and looks at the queue: no plan reads more.
-- Returns, in input order: seq of the new job (null: its key is taken, see key_taken.sql), its state, the time; waking; the id
--   of a queue with a cap whose lock is not held (nothing was added: take it and come again).
WITH q AS MATERIALIZED (
    SELECT *, pg_current_xact_id()::text::bigint AS txid, {now()} AS now,
        {lazily(durability <> 'fsync')},
        CASE priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END AS turn
    FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s AND (%(held)s::bool OR xmax = 0
        OR (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - xmax::text::bigint) & 4294967295 BETWEEN 1 AND 2147483647)
), i AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS seq, u.*,
        q.turn * LEAST(GREATEST(COALESCE(u.priority, 0), q.priority_min), q.priority_max) AS rank,
        CASE WHEN COALESCE(u.ttl, q.ttl_ms) > 0 THEN q.now + COALESCE(u.ttl, q.ttl_ms) * interval '1 ms' END AS expires_at,
        COALESCE(u.run_at, q.now + u.delay * interval '1 ms') AS due,
        (u.reply_to IS NOT NULL)::int + 2 * (u.result_ttl IS NOT NULL)::int + 64 * (COALESCE(octet_length(u.data), 0)
            + COALESCE(octet_length(u.meta), 0) + COALESCE(octet_length(u.body), 0) > 16384)::int + COALESCE(u.flow, 0) AS flags
    FROM q, ROWS FROM (
        unnest(%(numbers)s::int[]),
        unnest(%(keys)s::text[]), unnest(%(names)s::text[]), unnest(%(tags)s::text[]),
        unnest(%(priorities)s::int[]), unnest(%(datas)s::text[]), unnest(%(metas)s::text[]),
        unnest(%(bodies)s::bytea[]), unnest(%(run_at)s::timestamptz[]), unnest(%(delays)s::bigint[]),
        unnest(%(ttls)s::bigint[]), unnest(%(reply_to)s::text[]), unnest(%(result_ttls)s::bigint[]),
        unnest(%(max_deliveries)s::int[]), unnest(%(origins)s::text[]), unnest(%(flows)s::int[]), unnest(%(id_ends)s::text[]),
        unnest(%(tagged)s::text[])
    ) AS u(n, key, name, tag, priority, data, meta, body, run_at, delay, ttl, reply_to, result_ttl, max_deliveries, origin,
        flow, id_end, tagged)
), made AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, rank, generated, key, name, tag, data, meta, body, reply_to,
        result_ttl_ms, max_deliveries, origin)
    SELECT i.seq, q.id, q.now, i.expires_at, i.rank, i.id_end IS NOT NULL,
        COALESCE(i.key, leasequeue_job_id(i.seq, i.id_end)), i.name, i.tag, i.data::json, i.meta::json, i.body, i.reply_to,
        i.result_ttl, i.max_deliveries, COALESCE(i.origin, %(origin)s::text)
    FROM i, q WHERE %(locked)s::bool OR GREATEST(q.cap_records, q.cap_bytes) = 0
    ORDER BY i.key, i.n
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq
), new AS MATERIALIZED (
    SELECT i.*, CASE WHEN q.type = 'log' THEN 4 WHEN i.due > q.now THEN 1 ELSE 0 END AS state
    FROM made JOIN i ON i.seq = made.seq, q
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries, expires_at,
        tag)
    SELECT q.id, n.rank, 2, n.seq, n.seq, 0, n.flags, q.now, n.max_deliveries, n.expires_at, n.tag
    FROM new n, q WHERE n.state = 0
), delayed AS (
    INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, expires_at, tag)
    SELECT n.seq, q.id, n.due, 0, n.rank, n.flags, n.max_deliveries, n.expires_at, n.tag FROM new n, q WHERE n.state = 1
), records AS (
    INSERT INTO leasequeue_record (queue_id, seq, expires_at, tag)
    SELECT q.id, n.seq, n.expires_at, n.tag FROM new n, q WHERE n.state = 4
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank)
    SELECT DISTINCT q.id, n.rank FROM new n, q WHERE n.state <> 4 AND NOT EXISTS (
        SELECT FROM leasequeue_queuerank k WHERE k.queue_id = q.id AND k.rank = n.rank)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT q.txid, q.now, q.id, min(n.seq), max(n.seq), 1, n.name, array_agg(n.seq),
        CASE WHEN n.tagged IS NOT NULL THEN jsonb_build_object('tags', n.tagged::jsonb) END
    FROM new n, q WHERE q.log_enqueued AND n.state <> 4 GROUP BY q.txid, q.now, q.id, n.name, n.tagged, (n.n - 1) / 1000
), wake AS MATERIALIZED (
    SELECT {wake(q.id)} AS sent FROM q WHERE EXISTS (SELECT FROM new WHERE state <> 1)
)
SELECT n.seq, n.state, q.now, (SELECT sent FROM wake),
    CASE WHEN NOT %(locked)s::bool AND GREATEST(q.cap_records, q.cap_bytes) > 0 THEN q.id END
FROM q, i LEFT JOIN new n ON n.seq = i.seq ORDER BY i.n
