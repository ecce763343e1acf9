-- Purpose: keep a recurring task that was in another database before its queue moved here, with its ticks; one that is
--   here already (the settings declare it, or it was carried over before) keeps the later last tick, and a pause.
-- Parameters: service, name, schedule, timezone, task, args, kwargs (json texts), backend, queue_name, priority, grace,
--   until, times, phase, jitter, expires, runs, enabled, paused, from_settings, template, created_at,
--   last_tick_at, next_tick_at.
-- Index: leasequeue_recurring_name.
-- Pages: 50
-- Returns: the id; nothing if another task has the name.
INSERT INTO leasequeue_recurringtask AS r (service, name, schedule, timezone, task, args, kwargs, backend, queue_name,
    priority, grace, until, times, phase, jitter, expires, runs, enabled, paused, from_settings, template, last_error,
    created_at, last_tick_at, next_tick_at)
VALUES (%(service)s::text, %(name)s::text, %(schedule)s::text, %(timezone)s::text, %(task)s::text, %(args)s::jsonb,
    %(kwargs)s::jsonb,
    %(backend)s::text, %(queue_name)s::text, %(priority)s::smallint, %(grace)s::int, %(until)s::timestamptz,
    %(times)s::int, %(phase)s::int, %(jitter)s::int, %(expires)s::int, %(runs)s::int, %(enabled)s::bool,
    %(paused)s::bool, %(from_settings)s::bool, %(template)s::jsonb, '',
    %(created_at)s::timestamptz, %(last_tick_at)s::timestamptz, %(next_tick_at)s::timestamptz)
ON CONFLICT (service, name) DO UPDATE SET last_tick_at = GREATEST(r.last_tick_at, excluded.last_tick_at),
    next_tick_at = LEAST(r.next_tick_at, excluded.next_tick_at),
    enabled = r.enabled AND (excluded.enabled OR (excluded.from_settings AND NOT excluded.paused)),
    paused = r.paused OR excluded.paused, runs = GREATEST(r.runs, excluded.runs),
    from_settings = r.from_settings AND excluded.from_settings
WHERE (r.from_settings AND excluded.from_settings) OR (r.schedule, r.timezone, r.task, r.args, r.kwargs, r.backend,
    r.queue_name) = (excluded.schedule, excluded.timezone, excluded.task, excluded.args, excluded.kwargs,
        excluded.backend,
    excluded.queue_name)
RETURNING r.id
