-- Purpose: add one job that has nothing but data, a name and an id made of its number, ready at once: enqueue_one.sql for what tasks
--   without options of their own enqueue.
-- Parameters: project, queue, name, id_end (the key is made of the number and this), data (JSON text), now, autocommit.
-- Index: leasequeue_queue_name; else inserts only. The transaction id is taken before the number is drawn: readers rely on it.
-- Pages: 100
-- Host: inserts, and looks at the queue: no plan reads more.
-- Returns: seq of the new job, the time; waking. No row: there is no such queue, or it is a log, has a cap or keeps jobs without a priority
--   at another rank than 0, or a session may be about to delete it: enqueue_one.sql.
WITH q AS MATERIALIZED (
    SELECT id, log_enqueued, pg_current_xact_id()::text::bigint AS txid, {now()} AS now, {lazily(durability <> 'fsync')},
        nextval('leasequeue_job_seq_seq') AS seq, ttl_ms
    FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND type = 'queue' AND cap_records = 0 AND cap_bytes = 0
        AND priority_min <= 0 AND priority_max >= 0
        AND (xmax = 0
        OR (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - xmax::text::bigint) & 4294967295 BETWEEN 1 AND 2147483647)
), new AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, expires_at, rank, generated, key, name, data)
    SELECT q.seq, q.id, q.now, CASE WHEN q.ttl_ms > 0 THEN q.now + q.ttl_ms * interval '1 ms' END, 0, true,
        leasequeue_job_id(q.seq, %(id_end)s::text), %(name)s::text, %(data)s::text::json
    FROM q
), ready AS (
    INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, expires_at)
    SELECT q.id, 0, 2, q.seq, q.seq, 0, 0, q.now, CASE WHEN q.ttl_ms > 0 THEN q.now + q.ttl_ms * interval '1 ms' END FROM q
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs)
    SELECT q.txid, q.now, q.id, q.seq, q.seq, 1, %(name)s::text, ARRAY[q.seq] FROM q WHERE q.log_enqueued
)
SELECT q.seq, q.now, {wake(q.id)} FROM q
