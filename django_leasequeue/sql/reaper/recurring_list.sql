-- Purpose: recurring tasks in order, a page at a time.
-- Parameters: after (an id, exclusive), size, now.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 20 + 0.3 a row
-- Returns: now, id, name, schedule, timezone, next_tick_at, last_tick_at, grace, task, args, kwargs, backend,
--   queue_name, priority, template (json texts), enabled.
SELECT {now()}, id, name, schedule, timezone, next_tick_at, last_tick_at, grace, task, args::text, kwargs::text,
    backend, queue_name, priority, template::text, enabled
FROM leasequeue_recurringtask WHERE id > %(after)s::bigint ORDER BY id LIMIT %(size)s::int
