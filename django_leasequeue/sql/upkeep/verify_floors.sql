-- Purpose: no floor may stand above what is waiting, and a queue must know the ranks of its jobs: else claims, promotion or the
--   sweep do not see them.
-- Parameters: size.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Host: whole tables, as verify_snapshot.sql set the planner.
-- Returns: differences in all, difference, lowest seq (0: none), queue id, the floor's side, the waiting side (json), by queue,
--   kind and rank.
WITH w AS (
    SELECT queue_id, 0 AS kind, rank, seq, CASE lane WHEN 2 THEN position END AS value FROM leasequeue_ready
    UNION ALL
    SELECT queue_id, 1, 0, seq, (extract(epoch FROM available_at) * 1000000)::bigint FROM leasequeue_delayed
    UNION ALL
    SELECT queue_id, 2, 0, seqs[1], (extract(epoch FROM deadline) * 1000000)::bigint FROM leasequeue_claim
), f AS (
    SELECT queue_id, kind, rank, max(value) AS value FROM leasequeue_queuefloor GROUP BY queue_id, kind, rank
), k AS (
    SELECT DISTINCT queue_id, rank FROM leasequeue_queuerank
), d AS (
    SELECT CASE WHEN w.value < f.value THEN 'below_floor' ELSE 'no_rank' END AS difference, w.queue_id, w.kind, w.rank,
        count(*) AS jobs, min(w.seq) AS seq, min(w.value) AS lowest, f.value
    FROM w JOIN leasequeue_queue q ON q.id = w.queue_id
    LEFT JOIN f ON f.queue_id = w.queue_id AND f.kind = w.kind AND f.rank = w.rank
    LEFT JOIN k ON k.queue_id = w.queue_id AND k.rank = w.rank
    WHERE w.value < f.value OR w.kind = 0 AND k.rank IS NULL
    GROUP BY 1, w.queue_id, w.kind, w.rank, f.value
)
SELECT count(*) OVER (), d.difference, COALESCE(d.seq, 0), d.queue_id,
    jsonb_strip_nulls(jsonb_build_object('kind', (ARRAY['ready', 'delayed', 'claim'])[d.kind + 1], 'rank', d.rank,
        'value', d.value))::text,
    jsonb_strip_nulls(jsonb_build_object('jobs', d.jobs, 'lowest', d.lowest))::text
FROM d ORDER BY d.queue_id, d.kind, d.rank LIMIT %(size)s::int
