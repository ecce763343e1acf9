-- Purpose: make the keys of limits that are not there yet, in one order, so that two callers do not wait for each other
--   crosswise.
-- Parameters: project; arrays of equal length, each pair once: names (of the limits), keys.
-- Index: leasequeue_limit_name, leasequeue_limitkey_key.
-- Pages: 20 + 16 a row
INSERT INTO leasequeue_limitkey (limit_id, key)
SELECT l.id, i.key
FROM ROWS FROM (unnest(%(names)s::text[]), unnest(%(keys)s::text[])) AS i(name, key)
CROSS JOIN LATERAL (SELECT l.id FROM leasequeue_limit l WHERE l.project = %(project)s::text
    AND l.name = i.name OFFSET 0) l
WHERE NOT EXISTS (SELECT FROM leasequeue_limitkey k WHERE k.limit_id = l.id AND k.key = i.key OFFSET 0)
ORDER BY l.id, i.key
ON CONFLICT (limit_id, key) DO NOTHING
RETURNING id
