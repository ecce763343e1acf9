-- Purpose: add one job without a key of its own, ready at once: enqueue_one.sql for what most calls of tasks add.
-- Parameters: project, queue, name, priority, meta (JSON), tagged (its tags, in meta too, as JSON; null: none), ttl,
--   max_deliveries; id_end (the key is made of the number and this), data (JSON text); now, autocommit, alone.
-- Index: leasequeue_queue_name, leasequeue_rank_place; else inserts only. The transaction id is taken before the number
--   is drawn: readers rely on it.
-- Pages: 100
-- Returns: seq of the new job, the time; waking. No row: there is no such queue, or it is a log or has a cap, no job
--   had this rank before, or a session may be about to delete the queue: enqueue_one.sql.
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH ranked AS MATERIALIZED (
    SELECT id, log_enqueued, durability, COALESCE(%(ttl)s::bigint, ttl_ms) AS ttl_ms, {now()} AS now,
        CASE priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END
            * LEAST(GREATEST(COALESCE(%(priority)s::int, 0), priority_min), priority_max) AS rank
    FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND type = 'queue' AND cap_records = 0 AND cap_bytes = 0
        AND {not_being_deleted()}
), queue AS MATERIALIZED (
    SELECT id, log_enqueued, rank, now, {txid()} AS txid, {lazily(durability <> 'fsync')},
        nextval('leasequeue_job_seq_seq') AS seq,
        CASE WHEN ttl_ms > 0 THEN now + ttl_ms * interval '1 ms' END AS expires_at
    FROM ranked
    -- A queue is made with rank 0.
    WHERE rank = 0 OR EXISTS (SELECT FROM leasequeue_queuerank known
        WHERE known.queue_id = ranked.id AND known.rank = ranked.rank)
), job AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, rank, generated, key, name, data, meta,
        max_deliveries)
    SELECT seq, id, now, expires_at, rank, true, leasequeue_job_id(seq, %(id_end)s::text), %(name)s::text,
        %(data)s::text::json, %(meta)s::text::json, %(max_deliveries)s::int
    FROM queue
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries,
        expires_at)
    SELECT id, rank, {FRESH}, seq, seq, 0, 0, now, %(max_deliveries)s::int, expires_at FROM queue
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT txid, now, id, seq, seq, {event.ENQUEUED}, %(name)s::text, ARRAY[seq],
        CASE WHEN %(tagged)s::text IS NOT NULL THEN jsonb_build_object('tags', %(tagged)s::text::jsonb) END
    FROM queue WHERE log_enqueued
)
SELECT seq, now, {wake(id)} FROM queue
