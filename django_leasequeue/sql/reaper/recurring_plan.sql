-- Purpose: note the next tick of a recurring task, unless another reaper did meanwhile.
-- Parameters: id, before (the next tick that was read, or null), next_tick_at.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 30
-- Returns: the id; nothing if it has changed.
UPDATE leasequeue_recurringtask SET next_tick_at = %(next_tick_at)s::timestamptz
WHERE id = %(id)s::bigint AND enabled AND next_tick_at IS NOT DISTINCT FROM %(before)s::timestamptz
RETURNING id
