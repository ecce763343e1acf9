-- Purpose: after a limit has changed: a turn for each of its keys that has jobs waiting, or slots taken.
-- Parameters: limits (ids), now.
-- Index: leasequeue_limitkey_key, leasequeue_member_waits, leasequeue_member_taken.
-- Pages: 20 + 8 a row
-- Returns: the queues that have such jobs, each once; waking.
WITH keys AS MATERIALIZED (
    SELECT k.id, m.queue_id FROM unnest(%(limits)s::bigint[]) AS l(id)
    CROSS JOIN LATERAL (SELECT k.id FROM leasequeue_limitkey k WHERE k.limit_id = l.id OFFSET 0) k
    CROSS JOIN LATERAL (
        (SELECT m.queue_id FROM leasequeue_member m WHERE m.key = k.id AND m.waits ORDER BY m.rank, m.seq LIMIT 1)
        UNION ALL (SELECT m.queue_id FROM leasequeue_member m WHERE m.key = k.id AND m.taken LIMIT 1) LIMIT 1) m
), made AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key, detail) SELECT queue_id, 'epoch', {turn.ADMIT}, id,
        '{"changed": true}' FROM keys
)
SELECT w.queue_id, {wake(w.queue_id)} FROM (SELECT DISTINCT queue_id FROM keys) w
