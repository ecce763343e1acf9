-- Purpose: limits by project and name, with their keys and what waits for them, each counted up to a bound.
-- Parameters: project (null: all), ids (null: any), after_project, after_name (of the last one of the page before;
--   null: from the start), size, keys (of one limit that are looked at), cap (jobs of one limit that are counted).
-- Index: leasequeue_limit_name, leasequeue_limitkey_key, leasequeue_member_waits, leasequeue_member_taken.
-- Pages: 40 + 12 a row
SELECT l.id, l.project, l.name, l.concurrency, l.rate, l.per_ms, l.burst, l.fair, l.pinned, l.updated_at, f.keys,
    f.waiting, f.taken
FROM (SELECT * FROM leasequeue_limit l WHERE (%(project)s::text IS NULL OR l.project = %(project)s::text)
        AND (%(ids)s::bigint[] IS NULL OR l.id = ANY (%(ids)s::bigint[]))
            AND (l.project, l.name) > (COALESCE(%(after_project)s::text, ''), COALESCE(%(after_name)s::text, ''))
    ORDER BY l.project, l.name LIMIT %(size)s::int) l
CROSS JOIN LATERAL (
    WITH keys AS MATERIALIZED (
        SELECT k.id FROM leasequeue_limitkey k WHERE k.limit_id = l.id ORDER BY k.key LIMIT %(keys)s::int)
    SELECT (SELECT count(*) FROM keys) AS keys,
        (SELECT count(*) FROM (SELECT FROM keys CROSS JOIN LATERAL (
            SELECT FROM leasequeue_member m WHERE m.key = keys.id AND m.waits OFFSET 0) m
                LIMIT %(cap)s::int) w) AS waiting,
        (SELECT count(*) FROM (SELECT FROM keys CROSS JOIN LATERAL (
            SELECT FROM leasequeue_member m WHERE m.key = keys.id AND m.taken OFFSET 0) m
                LIMIT %(cap)s::int) t) AS taken
) f
ORDER BY l.project, l.name
