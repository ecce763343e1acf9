-- Purpose: remove a recurring task that moves to the database of its queue.
-- Parameters: id.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 60
DELETE FROM leasequeue_recurringtask WHERE id = %(id)s::bigint
RETURNING service, name, schedule, timezone, task, args::text, kwargs::text, backend, queue_name, priority, grace,
    until, times, phase, jitter, expires, runs, enabled, paused,
    from_settings, template::text, created_at, last_tick_at, next_tick_at
