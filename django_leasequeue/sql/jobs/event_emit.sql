-- Purpose: keep an event, unless one of its name is kept; jobs that wait for it are due now.
-- Parameters: project, name, payload (JSON text), keep (ms), size (jobs that are due at most: the reaper finds the
--   others), now.
-- Index: leasequeue_emittedevent_pkey, leasequeue_jobstep_event, leasequeue_delayed_pkey, in the function.
-- Pages: 60 + 20 a row
{keeps_host_settings(the function has its own settings)}
SELECT leasequeue_emit(%(project)s::text, %(name)s::text, %(payload)s::text::json, %(keep)s::bigint, %(size)s::int,
    %(now)s::timestamptz)
