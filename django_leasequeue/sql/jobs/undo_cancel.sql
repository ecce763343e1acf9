-- Purpose: cancel jobs that have steps to undo and are not leased: they are due now, and undo them. Waits for a
--   concurrent claim, and then leaves the job to it. What a limit or a workflow holds stays held.
-- Parameters: queue (id), seqs, now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey, leasequeue_jobstep_pkey.
-- Pages: 20 + 32 a row
WITH asked AS MATERIALIZED (
    SELECT seq, key, rank, COALESCE(position, seq) AS position FROM leasequeue_job WHERE seq = ANY (%(seqs)s::bigint[])
), ready AS MATERIALIZED (
    SELECT r.seq FROM asked CROSS JOIN (VALUES ({FRESH}::smallint), ({AGAIN}::smallint)) AS v(lane)
    CROSS JOIN LATERAL (
        SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = %(queue)s::bigint AND r.rank = asked.rank
            AND r.lane = v.lane AND r.position = asked.position FOR UPDATE) r
), delayed AS (
    UPDATE leasequeue_delayed SET available_at = CASE WHEN available_at + interval '0' < {HELD}
        THEN LEAST(available_at, {now()}) ELSE available_at END
    WHERE seq = ANY (%(seqs)s::bigint[]) AND queue_id + 0 = %(queue)s::bigint RETURNING seq
)
UPDATE leasequeue_jobstep s SET value = (s.value::text::jsonb || '{"why": "cancelled"}')::json FROM asked
WHERE s.seq = ANY (ARRAY(SELECT seq FROM ready UNION ALL SELECT seq FROM delayed)) AND s.name = '$undo'
    AND s.value ->> 'why' IS NULL AND asked.seq = s.seq
RETURNING s.seq, asked.key
