-- dead_member(seq): i and f, the limit of a dead letter j and its place in a workflow. One of another topic has left
-- its place under its old number, which is seq, and a note of its limit.
LEFT JOIN LATERAL (SELECT m.seq, m.key, m.workflow, m.state FROM leasequeue_member m WHERE m.seq = {seq} OFFSET 0) i
    ON true
LEFT JOIN LATERAL (SELECT l.name, k.key FROM leasequeue_limitkey k
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id OFFSET 0) l
    WHERE k.id = i.key OFFSET 0) l ON true
LEFT JOIN LATERAL (SELECT CASE WHEN i.seq IS NULL AND j.meta::text LIKE '%%"$limit"%%'
    THEN leasequeue_jsonb(j.meta) -> '$limit' END AS note OFFSET 0) w ON true
CROSS JOIN LATERAL (SELECT COALESCE(l.name, w.note ->> 0) AS limit_name, COALESCE(l.key, w.note ->> 1) AS limit_key,
    CASE WHEN i.workflow IS NOT NULL THEN i.seq END AS node,
    i.key IS NOT NULL OR i.workflow IS NOT NULL OR w.note IS NOT NULL AS member) f
