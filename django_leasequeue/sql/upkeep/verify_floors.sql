-- Purpose: no floor may stand above what is waiting, and a queue must know the ranks of its jobs: else claims,
--   promotion or the sweep do not see them.
-- Parameters: size.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Returns: differences in all, difference, lowest seq (0: none), queue id, the floor's side, the waiting side (json),
--   by queue, kind and rank.
{keeps_host_settings(verify_snapshot.sql has set the planner)}
WITH waiting AS (
    SELECT queue_id, {floor.READY} AS kind, rank, seq, CASE lane WHEN {FRESH} THEN position END AS value
    FROM leasequeue_ready
    UNION ALL
    SELECT queue_id, {floor.DELAYED}, 0, seq, (extract(epoch FROM available_at) * 1000000)::bigint
    FROM leasequeue_delayed
    UNION ALL
    SELECT queue_id, {floor.CLAIM}, 0, seqs[1], (extract(epoch FROM deadline) * 1000000)::bigint FROM leasequeue_claim
), floors AS (
    SELECT queue_id, kind, rank, max(value) AS value FROM leasequeue_queuefloor GROUP BY queue_id, kind, rank
), ranks AS (
    SELECT DISTINCT queue_id, rank FROM leasequeue_queuerank
), differences AS (
    SELECT CASE WHEN waiting.value < floors.value THEN 'below_floor' ELSE 'no_rank' END AS difference, waiting.queue_id,
        waiting.kind, waiting.rank,
        count(*) AS jobs, min(waiting.seq) AS seq, min(waiting.value) AS lowest, floors.value
    FROM waiting JOIN leasequeue_queue q ON q.id = waiting.queue_id
    LEFT JOIN floors ON floors.queue_id = waiting.queue_id AND floors.kind = waiting.kind AND floors.rank = waiting.rank
    LEFT JOIN ranks ON ranks.queue_id = waiting.queue_id AND ranks.rank = waiting.rank
    WHERE waiting.value < floors.value OR waiting.kind = {floor.READY} AND ranks.rank IS NULL
    GROUP BY 1, waiting.queue_id, waiting.kind, waiting.rank, floors.value
)
SELECT count(*) OVER (), difference, COALESCE(seq, 0), queue_id,
    jsonb_strip_nulls(jsonb_build_object('kind', CASE kind WHEN {floor.READY} THEN 'ready'
        WHEN {floor.DELAYED} THEN 'delayed'
        ELSE 'claim' END, 'rank', rank, 'value', value))::text,
    jsonb_strip_nulls(jsonb_build_object('jobs', jobs, 'lowest', lowest))::text
FROM differences ORDER BY differences.queue_id, differences.kind, differences.rank LIMIT %(size)s::int
