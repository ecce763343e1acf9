-- Purpose: begin a bulk enqueue: the queue's options, the time, and a number for each job.
-- Parameters: project, queue, size, held (the caller holds queue_hold; else it is held here: the jobs come with later
--   statements), now.
-- Index: leasequeue_queue_name. The transaction id is taken before the first number is drawn: readers rely on it.
-- Pages: 20 + 0.1 a row
-- Returns: queue id, type, priority_order, priority_min, priority_max, ttl_ms, log_enqueued, durability, now, numbers,
--   whether it has a cap; nothing if the queue is missing, or a session keeps it from writers.
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH queue AS MATERIALIZED (
    SELECT *, pg_current_xact_id() AS xid FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(queue)s AND (%(held)s::bool
        OR pg_try_advisory_xact_lock_shared({lock.writers}, id::int)
        AND {not_being_deleted()})
)
SELECT queue.id, queue.type, queue.priority_order, queue.priority_min, queue.priority_max, queue.ttl_ms,
    queue.log_enqueued, queue.durability, {now()},
    ARRAY(SELECT nextval('leasequeue_job_seq_seq') FROM generate_series(1, %(size)s::int)),
    queue.cap_records > 0 OR queue.cap_bytes > 0
FROM queue
