-- Purpose: the busiest of the next keys of a limit: those that most jobs wait for, then those that have most slots
--   taken.
-- Parameters: limit (id), after (key, exclusive), size (keys that are looked at), cap (jobs of one key that are
--   counted), most (keys that are returned).
-- Index: leasequeue_limitkey_key, leasequeue_member_waits, leasequeue_member_taken.
-- Pages: 20 + 24 a row
-- Returns: on every row: how many keys were looked at, the last of them, how many jobs wait for them and have slots of
--   them; then, or nulls: key, jobs that wait for it, slots that are taken.
WITH figures AS MATERIALIZED (
    SELECT k.key, w.waiting, t.taken
    FROM (SELECT k.id, k.key FROM leasequeue_limitkey k WHERE k.limit_id = %(limit)s::bigint AND k.key > %(after)s::text
        ORDER BY k.key LIMIT %(size)s::int) k
    CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM (
        SELECT FROM leasequeue_member m WHERE m.key = k.id AND m.waits LIMIT %(cap)s::int) w) w
    CROSS JOIN LATERAL (SELECT count(*) AS taken FROM (
        SELECT FROM leasequeue_member m WHERE m.key = k.id AND m.taken LIMIT %(cap)s::int) t) t
)
SELECT l.n, l.last, l.waiting, l.taken, b.key, b.waiting, b.taken
FROM (SELECT count(*) AS n, max(key) AS last, COALESCE(sum(waiting), 0)::bigint AS waiting,
    COALESCE(sum(taken), 0)::bigint AS taken
    FROM figures) l
LEFT JOIN (SELECT * FROM figures WHERE waiting > 0 OR taken > 0 ORDER BY figures.waiting DESC, figures.taken DESC,
    figures.key LIMIT %(most)s::int) b ON true
ORDER BY b.waiting DESC, b.taken DESC, b.key
