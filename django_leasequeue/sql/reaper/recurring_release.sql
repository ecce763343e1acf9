-- Purpose: take a recurring task away that is carried over to the database of its queue.
-- Parameters: id.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 60
-- Returns: its columns (args, kwargs: json texts), without the number of its last job; nothing if it is gone.
DELETE FROM leasequeue_recurringtask WHERE id = %(id)s::bigint
RETURNING name, schedule, timezone, task, args::text, kwargs::text, backend, queue_name, priority, enabled, from_settings,
    created_at, last_tick_at, next_tick_at
