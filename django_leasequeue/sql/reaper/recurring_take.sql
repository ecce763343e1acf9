-- Purpose: lock recurring tasks whose ticks are to be enqueued: of all who try, one gets a row. Rows that
--   somebody else has locked are left out, so that neither an admin's form nor a migrate makes the other ticks wait.
-- Parameters: arrays of equal length ids, ticks.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 10 + 6 a row
-- Returns: none of those whose tick is taken, or that ran as often as they may.
SELECT task.id, task.task, task.args::text AS args_json, task.kwargs::text AS kwargs_json, task.backend,
    task.queue_name, task.priority, task.expires, task.template::text AS job_json
FROM ROWS FROM (unnest(%(ids)s::bigint[]), unnest(%(ticks)s::timestamptz[])) AS asked(id, tick)
CROSS JOIN LATERAL (
    SELECT * FROM leasequeue_recurringtask r WHERE r.id = asked.id OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED) task
WHERE task.enabled AND (task.last_tick_at IS NULL OR task.last_tick_at < asked.tick)
    AND (task.times IS NULL OR task.runs < task.times)
