-- Purpose: everything of a bulk enqueue but the jobs themselves, where they are ready at once and differ in nothing but ids and payloads:
--   numbers, places, rank, event, waking. The jobs follow with COPY; meanwhile the queue is held.
-- Parameters: project, queue, size (at most 1,000), name, now, autocommit.
-- Index: leasequeue_queue_name, leasequeue_rank_place; else inserts only. The transaction id is taken before the first number is drawn:
--   readers rely on it.
-- Pages: 30 + 6 a row
-- Host: inserts, and looks at the queue: no plan reads more.
-- Returns: queue id, numbers, time, rank, when they expire, waking; nothing if the queue is missing, a log, has a cap, or a session keeps
--   it from writers.
WITH q AS MATERIALIZED (
    SELECT id, log_enqueued, ttl_ms, pg_current_xact_id()::text::bigint AS txid, {now()} AS now,
        {lazily(durability <> 'fsync')},
        CASE priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END * LEAST(GREATEST(0, priority_min), priority_max) AS rank
    FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND type = 'queue' AND cap_records = 0 AND cap_bytes = 0
        AND pg_try_advisory_xact_lock_shared(1280657735, id::int)
        AND (xmax = 0
        OR (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - xmax::text::bigint) & 4294967295 BETWEEN 1 AND 2147483647)
), n AS MATERIALIZED (
    SELECT q.*, CASE WHEN q.ttl_ms > 0 THEN q.now + q.ttl_ms * interval '1 ms' END AS expires_at,
        ARRAY(SELECT nextval('leasequeue_job_seq_seq') FROM generate_series(1, %(size)s::int)) AS seqs
    FROM q
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, expires_at)
    SELECT n.id, n.rank, 2, i.seq, i.seq, 0, 0, n.now, n.expires_at FROM n, unnest(n.seqs) AS i(seq)
), ranks AS (
    -- A queue is made with rank 0.
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT q.id, q.rank FROM q WHERE q.rank <> 0 AND NOT EXISTS (
        SELECT FROM leasequeue_queuerank k WHERE k.queue_id = q.id AND k.rank = q.rank)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs)
    SELECT n.txid, n.now, n.id, n.seqs[1], n.seqs[cardinality(n.seqs)], 1, %(name)s::text, n.seqs FROM n WHERE n.log_enqueued
)
SELECT n.id, n.seqs, n.now, n.rank, n.expires_at, {wake(n.id)} FROM n
