-- Purpose: recurring tasks in order, a page at a time.
-- Parameters: after (an id, exclusive), size, now.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 20 + 0.3 a row
-- Returns: the fields of reaper.recurring._Line; enabled: and not ended.
SELECT {now()}, id, name, schedule, timezone, next_tick_at, last_tick_at, grace, until, phase, jitter, task,
    args::text, kwargs::text, backend, queue_name, priority, expires, template::text, enabled AND ended_at IS NULL
FROM leasequeue_recurringtask WHERE id > %(after)s::bigint ORDER BY id LIMIT %(size)s::int
