-- Purpose: make a recurring task as a service's settings declare it, or change it to that; one that is paused stays
--   disabled. A new or changed schedule begins now.
-- Parameters: service, name, schedule, timezone, task, args, kwargs (json texts), backend, queue_name, priority, grace,
--   until, times, phase, jitter, expires, enabled, template (json text or null); now.
-- Index: leasequeue_recurring_name.
-- Pages: 50
-- Returns: whether it is new; nothing if nothing had to change.
INSERT INTO leasequeue_recurringtask AS r (service, name, schedule, timezone, task, args, kwargs, backend, queue_name,
    priority, grace, until, times, phase, jitter, expires, enabled, paused, template, from_settings, last_error,
    created_at)
VALUES (%(service)s::text, %(name)s::text, %(schedule)s::text, %(timezone)s::text, %(task)s::text, %(args)s::jsonb,
    %(kwargs)s::jsonb,
    %(backend)s::text, %(queue_name)s::text, %(priority)s::smallint, %(grace)s::int, %(until)s::timestamptz,
    %(times)s::int, %(phase)s::int, %(jitter)s::int, %(expires)s::int, %(enabled)s::bool, false,
        %(template)s::jsonb, true, '',
    {now()})
ON CONFLICT (service, name) DO UPDATE SET schedule = excluded.schedule, timezone = excluded.timezone,
    task = excluded.task,
    args = excluded.args, kwargs = excluded.kwargs, backend = excluded.backend, queue_name = excluded.queue_name,
    priority = excluded.priority, grace = excluded.grace, until = excluded.until, times = excluded.times,
    phase = excluded.phase, jitter = excluded.jitter, expires = excluded.expires,
    enabled = excluded.enabled AND NOT r.paused, template = excluded.template, last_error = '', failed_at = NULL
WHERE r.from_settings AND (r.schedule, r.timezone, r.task, r.args, r.kwargs, r.backend, r.queue_name, r.priority,
    r.grace, r.until, r.times, r.phase, r.jitter, r.expires, r.enabled, r.template)
    IS DISTINCT FROM (excluded.schedule, excluded.timezone, excluded.task, excluded.args, excluded.kwargs,
        excluded.backend,
        excluded.queue_name, excluded.priority, excluded.grace, excluded.until, excluded.times, excluded.phase,
        excluded.jitter, excluded.expires, excluded.enabled AND NOT r.paused, excluded.template)
RETURNING r.xmax = 0
