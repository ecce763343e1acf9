-- Purpose: take the turns of these queues that are due; what another claimer has taken is left to it. New jobs are
--   brought under their limits in the order in which they were enqueued: while another claimer has such turns, later
--   ones wait for it.
-- Parameters: queues (ids), size (turns per queue), starts (how many jobs the caller starts at once: so many turns of
--   rates per queue, those that have a time), now.
-- Index: leasequeue_flowturn_due, leasequeue_queue_pkey.
-- Pages: 20 + 12 a row
WITH due AS MATERIALIZED (
    SELECT u.place, u.id, u.kind, q.id AS queue FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT u.ctid AS place, u.id, u.kind FROM leasequeue_flowturn u WHERE u.queue_id = q.id AND u.at <= 'epoch'
            ORDER BY u.at, u.id LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) untimed
        UNION ALL
        SELECT * FROM (
            SELECT u.ctid AS place, u.id, u.kind FROM leasequeue_flowturn u
            WHERE u.queue_id = q.id AND u.at > 'epoch' AND u.at <= (SELECT {now()})
            ORDER BY u.at, u.id LIMIT %(starts)s::int FOR UPDATE SKIP LOCKED) timed) u
), before AS MATERIALIZED (
    -- The first one that another claimer has: it stays visible until that one's transaction ends.
    SELECT q.id AS queue, COALESCE((SELECT min(f.id) FROM (
            SELECT f.id, f.kind FROM leasequeue_flowturn f WHERE f.queue_id = q.id AND f.at <= 'epoch'
            ORDER BY f.at, f.id LIMIT 2 * %(size)s::int) f
        WHERE f.kind = {turn.JOIN} AND f.id NOT IN (SELECT id FROM due)), 9223372036854775807) AS id
    FROM unnest(%(queues)s::bigint[]) AS q(id)
), gone AS (
    DELETE FROM leasequeue_flowturn WHERE ctid = ANY (ARRAY(
        SELECT due.place FROM due WHERE due.kind <> {turn.JOIN} OR due.id < (SELECT b.id FROM before b
            WHERE b.queue = due.queue)))
    RETURNING id, queue_id, kind, key, seqs, detail
)
SELECT g.kind, q.project, g.key, g.seqs, g.detail::text
FROM gone g CROSS JOIN LATERAL (SELECT project FROM leasequeue_queue q WHERE q.id = g.queue_id OFFSET 0) q
ORDER BY g.kind, g.id
