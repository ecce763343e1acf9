-- Purpose: what no job may be: without a queue, a record in a queue or a job in a log, delayed without a time, leased without
--   a holder, live and ended at once.
-- Parameters: size.
-- Index: whole tables, leasequeue_jobresult_pkey: an operator's statement.
-- Returns: differences in all, difference, seq, queue id, what is expected, what was found (json).
WITH d AS (
    SELECT CASE
            WHEN q.id IS NULL THEN 'no_queue'
            WHEN (q.type = 'log') <> (j.state = 4) THEN 'wrong_type'
            WHEN j.state = 1 AND j.available_at IS NULL THEN 'delayed_without_time'
            WHEN j.state = 2 AND (j.node IS NULL OR j.claim IS NULL OR j.deadline IS NULL) THEN 'leased_without_holder'
            WHEN r.seq IS NOT NULL THEN 'live_and_ended' END AS difference,
        j.seq, j.queue_id, j.state, q.type
    FROM leasequeue_job j LEFT JOIN leasequeue_queue q ON q.id = j.queue_id
    LEFT JOIN leasequeue_jobresult r ON r.seq = j.seq
)
SELECT count(*) OVER (), d.difference, d.seq, d.queue_id,
    jsonb_strip_nulls(jsonb_build_object('type', d.type))::text,
    jsonb_build_object('state', (ARRAY['ready', 'delayed', 'leased', 'dead', 'record'])[d.state + 1])::text
FROM d WHERE d.difference IS NOT NULL ORDER BY d.seq LIMIT %(size)s::int
