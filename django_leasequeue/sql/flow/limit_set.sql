-- Purpose: make or change limits, as the code or an operator says. What an operator has pinned the code does not change.
-- Parameters: project; arrays of equal length: names, concurrencies, rates, pers (ms), bursts, fairs; pin (true: an operator's values; false:
--   the code's), unpin (the code's values count again), now.
-- Index: leasequeue_limit_name.
-- Pages: 20 + 14 a row
-- Returns: the ids of those that were made or have changed.
INSERT INTO leasequeue_limit AS l (project, name, concurrency, rate, per_ms, burst, fair, pinned, updated_at)
SELECT %(project)s::text, i.name, i.concurrency, i.rate, i.per_ms, i.burst, i.fair, %(pin)s::bool,
    {now()}
FROM ROWS FROM (unnest(%(names)s::text[]), unnest(%(concurrencies)s::int[]), unnest(%(rates)s::int[]), unnest(%(pers)s::bigint[]),
    unnest(%(bursts)s::int[]), unnest(%(fairs)s::bool[])) AS i(name, concurrency, rate, per_ms, burst, fair)
-- Rows that stay as they are are not even locked.
WHERE NOT EXISTS (SELECT FROM leasequeue_limit o WHERE o.project = %(project)s::text AND o.name = i.name
    AND (o.pinned AND NOT %(pin)s::bool AND NOT %(unpin)s::bool OR ROW(o.concurrency, o.rate, o.per_ms, o.burst, o.fair, o.pinned)
        IS NOT DISTINCT FROM ROW(i.concurrency, i.rate, i.per_ms, i.burst, i.fair, %(pin)s::bool)) OFFSET 0)
ORDER BY i.name
ON CONFLICT (project, name) DO UPDATE SET concurrency = excluded.concurrency, rate = excluded.rate, per_ms = excluded.per_ms,
    burst = excluded.burst, fair = excluded.fair, pinned = excluded.pinned, updated_at = excluded.updated_at
WHERE (%(pin)s::bool OR %(unpin)s::bool OR NOT l.pinned)
    AND ROW(l.concurrency, l.rate, l.per_ms, l.burst, l.fair, l.pinned)
        IS DISTINCT FROM ROW(excluded.concurrency, excluded.rate, excluded.per_ms, excluded.burst, excluded.fair, excluded.pinned)
RETURNING l.id
