-- Purpose: make a recurring task as the settings declare it, or change it to that; a row that was made in the database
--   is left alone. A new or changed schedule begins now.
-- Parameters: name, schedule, timezone, task, args, kwargs (json texts), backend, queue_name, priority, enabled; now.
-- Index: the unique one on name.
-- Pages: 50
-- Returns: whether it is new; nothing if nothing had to change.
INSERT INTO leasequeue_recurringtask AS r (name, schedule, timezone, task, args, kwargs, backend, queue_name, priority,
    enabled, from_settings, created_at)
VALUES (%(name)s::text, %(schedule)s::text, %(timezone)s::text, %(task)s::text, %(args)s::jsonb, %(kwargs)s::jsonb,
    %(backend)s::text, %(queue_name)s::text, %(priority)s::smallint, %(enabled)s::bool, true,
    {now()})
ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, timezone = excluded.timezone, task = excluded.task,
    args = excluded.args, kwargs = excluded.kwargs, backend = excluded.backend, queue_name = excluded.queue_name,
    priority = excluded.priority, enabled = excluded.enabled,
    next_tick_at = CASE WHEN r.enabled AND excluded.enabled
        AND (r.schedule, r.timezone) = (excluded.schedule, excluded.timezone) THEN r.next_tick_at END
WHERE r.from_settings AND (r.schedule, r.timezone, r.task, r.args, r.kwargs, r.backend, r.queue_name, r.priority, r.enabled)
    IS DISTINCT FROM (excluded.schedule, excluded.timezone, excluded.task, excluded.args, excluded.kwargs,
        excluded.backend, excluded.queue_name, excluded.priority, excluded.enabled)
RETURNING r.xmax = 0
