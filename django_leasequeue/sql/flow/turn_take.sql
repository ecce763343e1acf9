-- Purpose: take the turns of these queues that are due; what another claimer has taken is left to it.
-- Parameters: queues (ids), size (turns per queue), now.
-- Index: leasequeue_flowturn_due, leasequeue_queue_pkey.
-- Pages: 20 + 8 a row
-- Returns: kind, project, key, seqs, detail (JSON text).
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), u AS MATERIALIZED (
    SELECT u.place FROM unnest(%(queues)s::bigint[]) AS q(id) CROSS JOIN LATERAL (
        SELECT u.ctid AS place FROM leasequeue_flowturn u WHERE u.queue_id = q.id AND u.at <= (SELECT now FROM t)
        ORDER BY u.at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) u
), gone AS (
    DELETE FROM leasequeue_flowturn WHERE ctid = ANY (ARRAY(SELECT place FROM u)) RETURNING id, queue_id, kind, key, seqs, detail
)
SELECT g.kind, q.project, g.key, g.seqs, g.detail::text
FROM gone g CROSS JOIN LATERAL (SELECT project FROM leasequeue_queue q WHERE q.id = g.queue_id OFFSET 0) q
ORDER BY g.kind, g.id
