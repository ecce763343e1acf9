-- Purpose: keep an event that jobs wait for, unless one of its name is kept already; those that wait are due now.
-- Parameters: project, name, payload (JSON text), keep (ms), size (jobs that are due at most: the reaper finds the others), now.
-- Index: leasequeue_emittedevent_pkey, leasequeue_jobstep_event, leasequeue_delayed_pkey, in the function.
-- Pages: 60 + 20 a row
-- Host: the function has its own settings.
-- Returns: the queues (ids) of those that waited; null: it is not the first of its name.
SELECT leasequeue_emit(%(project)s::text, %(name)s::text, %(payload)s::text::json, %(keep)s::bigint, %(size)s::int, %(now)s::timestamptz)
