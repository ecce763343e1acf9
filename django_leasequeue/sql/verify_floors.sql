-- Purpose: no floor may stand above what is waiting, and every place needs one: else claims, promotion or the sweep do not
--   see it (a minute long, until the floor is looked at from zero; without a floor for ever).
-- Parameters: size.
-- Index: whole tables: an operator's statement.
-- Returns: differences in all, difference, lowest seq, queue id, the floor's side, the waiting side (json), by queue, kind
--   and rank.
WITH w AS (
    SELECT j.queue_id, 0 AS kind, j.rank::int AS rank, j.seq, j.position AS value FROM leasequeue_job j WHERE j.state = 0
    UNION ALL
    SELECT j.queue_id, 1, 0, j.seq, (extract(epoch FROM j.available_at) * 1000000)::bigint FROM leasequeue_job j
    WHERE j.state = 1
    UNION ALL
    SELECT j.queue_id, 2, 0, j.seq, (extract(epoch FROM c.deadline) * 1000000)::bigint
    FROM leasequeue_job j JOIN leasequeue_claim c ON c.id = j.claim WHERE j.state = 2
), d AS (
    SELECT w.queue_id, w.kind, w.rank, count(*) AS jobs, min(w.seq) AS seq, min(w.value) AS lowest, f.value
    FROM w JOIN leasequeue_queue q ON q.id = w.queue_id
    LEFT JOIN leasequeue_queuefloor f ON f.queue_id = w.queue_id AND f.kind = w.kind AND f.rank = w.rank
    WHERE f.value IS NULL OR w.value < f.value
    GROUP BY w.queue_id, w.kind, w.rank, f.value
)
SELECT count(*) OVER (), CASE WHEN d.value IS NULL THEN 'no_floor' ELSE 'below_floor' END, d.seq, d.queue_id,
    jsonb_strip_nulls(jsonb_build_object('kind', (ARRAY['ready', 'delayed', 'claim'])[d.kind + 1], 'rank', d.rank,
        'value', d.value))::text,
    jsonb_build_object('jobs', d.jobs, 'lowest', d.lowest)::text
FROM d ORDER BY d.queue_id, d.kind, d.rank LIMIT %(size)s::int
