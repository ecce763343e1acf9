-- Purpose: take a tick of a recurring task: of all who try, one gets the row.
-- Parameters: id, tick, next_tick_at.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 60
-- Returns: task, args, kwargs (json texts), backend, queue_name, priority; nothing if the tick is taken.
UPDATE leasequeue_recurringtask
SET last_tick_at = %(tick)s::timestamptz, next_tick_at = %(next_tick_at)s::timestamptz
WHERE id = %(id)s::bigint AND enabled AND (last_tick_at IS NULL OR last_tick_at < %(tick)s::timestamptz)
RETURNING task, args::text, kwargs::text, backend, queue_name, priority
