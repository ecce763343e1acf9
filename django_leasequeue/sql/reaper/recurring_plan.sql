-- Purpose: note the next tick of a recurring task, or that it has ended, unless another reaper did meanwhile.
-- Parameters: id, before (the next tick that was read, or null), next_tick_at (null: there is none); now.
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 30
UPDATE leasequeue_recurringtask SET
    next_tick_at = CASE WHEN runs >= times THEN NULL ELSE %(next_tick_at)s::timestamptz END,
    ended_at = CASE WHEN runs >= times OR %(next_tick_at)s::timestamptz IS NULL THEN {now()} END
WHERE id = %(id)s::bigint AND enabled AND next_tick_at IS NOT DISTINCT FROM %(before)s::timestamptz
RETURNING id
