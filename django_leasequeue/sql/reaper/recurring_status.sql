-- Purpose: recurring tasks and their ticks, the next due first.
-- Parameters: size, now.
-- Index: leasequeue_recurring_next.
-- Pages: 20 + 0.1 a row
-- Returns: name, schedule, timezone, enabled, last_tick_at, next_tick_at, seconds that it is overdue (below 0: not yet).
SELECT name, schedule, timezone, enabled, last_tick_at, next_tick_at,
    extract(epoch FROM COALESCE(%(now)s::timestamptz, clock_timestamp()) - next_tick_at)::float8
FROM leasequeue_recurringtask ORDER BY next_tick_at NULLS LAST, name LIMIT %(size)s::int
