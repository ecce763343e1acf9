-- Purpose: everything of a bulk enqueue but the jobs themselves, where they are ready at once and differ in nothing but
--   ids and payloads: numbers, places, rank, event, waking. The jobs follow with COPY.
-- Parameters: project, queue, size (at most 1,000), held (this transaction has added jobs here: nobody deletes the
--   queue, and a cap that it has been given since holds for the next call), name, priority,
--   tagged (their tags as JSON; null: none), ttl, max_deliveries; now, autocommit, alone.
-- Index: leasequeue_queue_name, leasequeue_rank_place; else inserts only. The transaction id is taken before the first
--   number is drawn: readers rely on it.
-- Pages: 30 + 8 a row
-- Returns: queue id, numbers, time, rank, when they expire, waking; nothing if the queue is missing, a log, has a cap,
--   or a session keeps it from writers.
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH queue AS MATERIALIZED (
    SELECT id, log_enqueued, COALESCE(%(ttl)s::bigint, ttl_ms) AS ttl_ms, {txid()} AS txid,
        {now()} AS now, {lazily(durability <> 'fsync')},
        CASE priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END
            * LEAST(GREATEST(COALESCE(%(priority)s::int, 0), priority_min), priority_max) AS rank
    FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND type = 'queue'
        AND (%(held)s::bool OR cap_records = 0 AND cap_bytes = 0
            AND pg_try_advisory_xact_lock_shared({lock.writers}, id::int) AND {not_being_deleted()})
), numbered AS MATERIALIZED (
    SELECT queue.*, CASE WHEN ttl_ms > 0 THEN now + ttl_ms * interval '1 ms' END AS expires_at,
        ARRAY(SELECT nextval('leasequeue_job_seq_seq') FROM generate_series(1, %(size)s::int)) AS seqs
    FROM queue
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries,
        expires_at)
    SELECT id, rank, {FRESH}, job.seq, job.seq, 0, 0, now, %(max_deliveries)s::int, expires_at
    FROM numbered, unnest(seqs) AS job(seq)
), ranks AS (
    -- A queue is made with rank 0.
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT queue.id, queue.rank FROM queue
    WHERE queue.rank <> 0 AND NOT EXISTS (
        SELECT FROM leasequeue_queuerank known WHERE known.queue_id = queue.id AND known.rank = queue.rank)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, detail)
    SELECT txid, now, id, seqs[1], seqs[cardinality(seqs)], {event.ENQUEUED}, %(name)s::text, seqs,
        CASE WHEN %(tagged)s::text IS NOT NULL THEN jsonb_build_object('tags', %(tagged)s::text::jsonb) END
    FROM numbered WHERE log_enqueued
)
SELECT id, seqs, now, rank, expires_at, {wake(id)} FROM numbered
