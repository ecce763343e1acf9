-- Purpose: give a limit back to the code: its newest values count at once. Of one that the code has not named yet the
--   operator's values stay until it does.
-- Parameters: project, name, now.
-- Index: leasequeue_limit_name.
-- Pages: 20
UPDATE leasequeue_limit l SET (concurrency, rate, per_ms, burst, fair) = (
        SELECT (o.told ->> 0)::int, (o.told ->> 1)::int, (o.told ->> 2)::bigint, (o.told ->> 3)::int,
            (o.told ->> 4)::bool
        FROM (SELECT COALESCE(l.code, jsonb_build_array(l.concurrency, l.rate, l.per_ms, l.burst, l.fair)) AS told) o),
    pinned = false, updated_at = {now()}
WHERE l.project = %(project)s::text AND l.name = %(name)s::text AND l.pinned
RETURNING l.id, l.name, l.concurrency, l.rate, l.per_ms, l.burst, l.fair, l.code IS NOT NULL AS named
