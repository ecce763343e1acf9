-- Purpose: recurring tasks that have not ended and whose next tick is due or not planned, the longest due first.
-- Parameters: size, now.
-- Index: leasequeue_recurring_next.
-- Pages: 30 + 2 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now), due AS (
    (SELECT id FROM leasequeue_recurringtask WHERE enabled AND ended_at IS NULL AND next_tick_at IS NULL
        LIMIT %(size)s::int)
    UNION ALL
    (SELECT id FROM leasequeue_recurringtask WHERE enabled AND ended_at IS NULL
        AND next_tick_at <= (SELECT now FROM clock) ORDER BY next_tick_at LIMIT %(size)s::int)
)
SELECT clock.now, r.id, r.name, r.schedule, r.timezone, r.next_tick_at, r.last_tick_at, r.grace, r.until,
    r.phase, r.jitter, r.task,
    r.args::text AS args_json, r.kwargs::text AS kwargs_json, r.backend, r.queue_name, r.priority, r.expires,
    r.template::text AS job_json, r.enabled
FROM clock CROSS JOIN due CROSS JOIN LATERAL (SELECT * FROM leasequeue_recurringtask r WHERE r.id = due.id OFFSET 0) r
