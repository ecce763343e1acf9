-- Purpose: begin a bulk enqueue: the queue's options, the time, and a number for each job.
-- Parameters: project, queue, size, held (the caller holds queue_hold; else it is held here: the jobs come with later statements),
--   now.
-- Index: leasequeue_queue_name. The transaction id is taken before the first number is drawn: readers rely on it.
-- Pages: 20 + 0.1 a row
-- Host: inserts, and looks at the queue: no plan reads more.
-- Returns: queue id, type, priority_order, priority_min, priority_max, ttl_ms, log_enqueued, durability, now, numbers, whether it
--   has a cap; nothing if the queue is missing, or a session keeps it from writers.
WITH q AS MATERIALIZED (
    SELECT *, pg_current_xact_id() AS xid FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND (%(held)s::bool OR pg_try_advisory_xact_lock_shared(1280657735, id::int)
        AND (xmax = 0
        OR (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - xmax::text::bigint) & 4294967295 BETWEEN 1 AND 2147483647))
)
SELECT q.id, q.type, q.priority_order, q.priority_min, q.priority_max, q.ttl_ms, q.log_enqueued, q.durability,
    {now()},
    ARRAY(SELECT nextval('leasequeue_job_seq_seq') FROM generate_series(1, %(size)s::int)),
    q.cap_records > 0 OR q.cap_bytes > 0
FROM q
