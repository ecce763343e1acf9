-- Purpose: make or change limits, as the code or an operator says. Of a limit that an operator has pinned, the code's
--   values are noted, and count when it is given back.
-- Parameters: project; arrays of equal length: names, concurrencies, rates, pers (ms), bursts, fairs; pin (true: an
--   operator's values; false: the code's), now.
-- Index: leasequeue_limit_name.
-- Pages: 20 + 14 a row
-- Returns: the ids of those that were made or have changed.
WITH given AS MATERIALIZED (
    SELECT i.*, jsonb_build_array(i.concurrency, i.rate, i.per_ms, i.burst, i.fair) AS told
    FROM ROWS FROM (unnest(%(names)s::text[]), unnest(%(concurrencies)s::int[]), unnest(%(rates)s::int[]),
        unnest(%(pers)s::bigint[]), unnest(%(bursts)s::int[]), unnest(%(fairs)s::bool[]))
        AS i(name, concurrency, rate, per_ms, burst, fair)
)
INSERT INTO leasequeue_limit AS l (project, name, concurrency, rate, per_ms, burst, fair, pinned, code, updated_at)
SELECT %(project)s::text, given.name, given.concurrency, given.rate, given.per_ms, given.burst, given.fair,
    %(pin)s::bool, CASE WHEN NOT %(pin)s::bool THEN given.told END, {now()}
FROM given
-- Rows that stay as they are are not even locked.
WHERE NOT EXISTS (SELECT FROM leasequeue_limit o WHERE o.project = %(project)s::text AND o.name = given.name
    AND CASE WHEN %(pin)s::bool
        THEN o.pinned AND jsonb_build_array(o.concurrency, o.rate, o.per_ms, o.burst, o.fair) = given.told
        ELSE o.code = given.told END OFFSET 0)
ORDER BY given.name
ON CONFLICT (project, name) DO UPDATE SET code = CASE WHEN %(pin)s::bool THEN l.code ELSE excluded.code END,
    (concurrency, rate, per_ms, burst, fair) = (
        SELECT v.concurrency, v.rate, v.per_ms, v.burst, v.fair
        FROM (VALUES (true, excluded.concurrency, excluded.rate, excluded.per_ms, excluded.burst, excluded.fair),
            (false, l.concurrency, l.rate, l.per_ms, l.burst, l.fair))
            AS v(new, concurrency, rate, per_ms, burst, fair)
        WHERE v.new = (%(pin)s::bool OR NOT l.pinned)),
    pinned = l.pinned OR %(pin)s::bool, updated_at = excluded.updated_at
RETURNING l.id
