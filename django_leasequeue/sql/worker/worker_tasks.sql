-- Purpose: find the queues that hold tasks, and note it permanently.
-- Parameters: queues (ids), declared (ids of those that the settings declare for tasks).
-- Index: leasequeue_queue_pkey, leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey (the fresh lane
--   from the floor on; 40 entries of each rank and lane), leasequeue_job_pkey.
-- Pages: 20 + 100 a row
-- Returns: id of each. A row that another session has locked is noted the next time.
WITH found AS MATERIALIZED (
    SELECT u.id FROM unnest(%(queues)s::bigint[]) AS u(id) WHERE u.id = ANY (%(declared)s::bigint[])
        OR {holds_task(u.id)}
), free AS MATERIALIZED (
    SELECT q.id FROM leasequeue_queue q WHERE q.id = ANY (ARRAY(SELECT id FROM found)) AND NOT q.holds_tasks
    ORDER BY q.id FOR NO KEY UPDATE SKIP LOCKED
), noted AS (
    UPDATE leasequeue_queue q SET holds_tasks = true FROM free WHERE q.id = free.id
)
SELECT id FROM found
