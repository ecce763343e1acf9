-- Purpose: what members of limits and workflows may never be: with a slot that no job needs, ready or leased without one, more of a
--   key than its limit allows, held by nothing. What has a turn to come is passed over: it is about to be looked at.
-- Parameters: size.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Host: whole tables, as verify_snapshot.sql set the planner.
-- Returns: differences in all, difference, lowest seq (0: none), queue id, what is expected (json), what was found (json).
WITH turns AS MATERIALIZED (
    SELECT DISTINCT u.seq FROM leasequeue_flowturn f, unnest(f.seqs) AS u(seq)
), keyed AS MATERIALIZED (
    SELECT DISTINCT key FROM leasequeue_flowturn WHERE key IS NOT NULL
), live AS MATERIALIZED (
    SELECT seq FROM leasequeue_ready WHERE flags & 128 <> 0
    UNION ALL SELECT u.seq FROM leasequeue_claim c, unnest(c.seqs) AS u(seq) WHERE c.flags & 128 <> 0
    UNION ALL SELECT seq FROM leasequeue_delayed WHERE flags & 512 <> 0
), held AS MATERIALIZED (
    SELECT seq, queue_id FROM leasequeue_delayed WHERE available_at >= '9000-01-01 00:00+00'
), d AS (
    SELECT CASE
            WHEN m.taken AND live.seq IS NULL THEN 'lost_slot'
            WHEN NOT m.taken AND live.seq IS NOT NULL AND l.concurrency IS NOT NULL THEN 'no_slot'
            WHEN held.seq IS NOT NULL AND NOT m.waits AND m.pending = 0 AND m.state = 0 THEN 'waits_for_nothing' END AS difference,
        m.seq, m.queue_id, m.taken, m.waits, m.pending, m.state, l.name, k.key
    FROM leasequeue_member m LEFT JOIN live ON live.seq = m.seq LEFT JOIN held ON held.seq = m.seq
    LEFT JOIN leasequeue_limitkey k ON k.id = m.key LEFT JOIN leasequeue_limit l ON l.id = k.limit_id
    WHERE m.seq NOT IN (SELECT seq FROM turns)
    UNION ALL
    SELECT 'held_by_nobody', held.seq, held.queue_id, NULL, NULL, NULL, NULL, NULL, NULL
    FROM held LEFT JOIN leasequeue_member m ON m.seq = held.seq
    WHERE m.seq IS NULL AND held.seq NOT IN (SELECT seq FROM turns)
    UNION ALL
    SELECT 'too_many_slots', 0, min(m.queue_id), NULL, NULL, NULL, NULL, min(l.name), min(k.key)
    FROM leasequeue_member m JOIN leasequeue_limitkey k ON k.id = m.key JOIN leasequeue_limit l ON l.id = k.limit_id
    WHERE m.taken AND k.id NOT IN (SELECT key FROM keyed) GROUP BY k.id, l.concurrency HAVING count(*) > l.concurrency
)
SELECT count(*) OVER (), d.difference, d.seq, d.queue_id, jsonb_strip_nulls(jsonb_build_object('limit', d.name, 'key', d.key))::text,
    jsonb_strip_nulls(jsonb_build_object('taken', d.taken, 'waits', d.waits, 'pending', d.pending, 'state', d.state))::text
FROM d WHERE d.difference IS NOT NULL ORDER BY d.difference, d.seq LIMIT %(size)s::int
