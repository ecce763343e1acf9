-- Purpose: the recurring tasks; those that are disabled forget their next tick, so that enabling one begins anew.
-- Parameters: size, now.
-- Index: none (a small table).
-- Pages: 20 + 0.1 a row
-- Returns: now, id, name, schedule, timezone, next_tick_at, task, backend, queue_name, enabled.
WITH paused AS (
    UPDATE leasequeue_recurringtask SET next_tick_at = NULL WHERE NOT enabled AND next_tick_at IS NOT NULL
)
SELECT {now()}, id, name, schedule, timezone, next_tick_at,
    task, backend, queue_name, enabled
FROM leasequeue_recurringtask ORDER BY enabled DESC, id LIMIT %(size)s::int
