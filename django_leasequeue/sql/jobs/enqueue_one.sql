-- Purpose: add one job, ready at once, to a queue without a cap: enqueue.sql for the case that is asked for one by one.
-- Parameters: project, queue, key, name, tag, priority, data, meta, body, ttl, reply_to, result_ttl, max_deliveries,
--   origin, tagged (its tags, in meta too, as JSON; null: none); id_end (the key is made of the number and this; null:
--   as given); flags (of the job); now, autocommit, alone.
-- Index: leasequeue_queue_name, leasequeue_job_key, leasequeue_rank_place; else inserts only.
-- Pages: 100
-- Returns: seq of the new job (null: its key is taken, see key_taken.sql), the time; waking. No row: there is no such
--   queue, it is a log or has a cap, or a session may be about to delete it: enqueue.sql.
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH queue AS MATERIALIZED (
    SELECT id, log_enqueued, ttl_ms, {txid()} AS txid, {now()} AS now,
        {lazily(durability <> 'fsync')},
        CASE priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END
            * LEAST(GREATEST(COALESCE(%(priority)s::int, 0), priority_min), priority_max) AS rank
    FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND type = 'queue' AND cap_records = 0 AND cap_bytes = 0
        AND {not_being_deleted()}
), new AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, rank, generated, key, name, tag, data, meta,
        body, reply_to, result_ttl_ms, max_deliveries, origin)
    SELECT q.seq, q.id, q.now,
        CASE WHEN COALESCE(%(ttl)s::bigint, q.ttl_ms) > 0
            THEN q.now + COALESCE(%(ttl)s::bigint, q.ttl_ms) * interval '1 ms' END,
        q.rank, %(id_end)s::text IS NOT NULL, COALESCE(%(key)s::text, leasequeue_job_id(q.seq, %(id_end)s::text)),
        %(name)s::text, %(tag)s::text, %(data)s::text::json, %(meta)s::text::json, %(body)s::bytea, %(reply_to)s::text,
        %(result_ttl)s::bigint, %(max_deliveries)s::int, %(origin)s::text
    FROM (SELECT *, nextval('leasequeue_job_seq_seq') AS seq FROM queue OFFSET 0) q
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL AND NOT generated DO NOTHING
    RETURNING seq, queue_id, rank, created_at, expires_at
), ready AS (
    {into_ready()}
    SELECT n.queue_id, n.rank, {FRESH}, n.seq, n.seq, 0, %(flags)s::smallint, n.created_at, %(max_deliveries)s::int,
        n.expires_at, %(tag)s::text
    FROM new n
), ranks AS (
    -- A queue is made with rank 0.
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT queue.id, queue.rank FROM queue
    WHERE queue.rank <> 0 AND NOT EXISTS (
        SELECT FROM leasequeue_queuerank k WHERE k.queue_id = queue.id AND k.rank = queue.rank)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT queue.txid, queue.now, queue.id, n.seq, n.seq, {event.ENQUEUED}, %(name)s::text, ARRAY[n.seq],
        CASE WHEN %(tagged)s::text IS NOT NULL THEN jsonb_build_object('tags', %(tagged)s::text::jsonb) END
    FROM new n, queue WHERE queue.log_enqueued
)
SELECT n.seq, queue.now, CASE WHEN n.seq IS NOT NULL THEN {wake(queue.id)} END
FROM queue LEFT JOIN new n ON true
