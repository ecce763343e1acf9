-- Purpose: note how many nodes of workflows have ended, and whether that was the end. The caller holds them
--   (flow_lock.sql).
-- Parameters: arrays of equal length: workflows (ids, each once), completed, failed, cancelled (how many more, or
--   fewer); keep (ms that an ended workflow is kept), now.
-- Index: leasequeue_workflow_pkey, leasequeue_member_pkey, leasequeue_flowturn_extend, leasequeue_jobstep_event.
-- Pages: 20 + 12 a row
-- Returns: id, state, the job that starts when one has failed, its queue, whether it does now, its key (null: at once),
--   whether it has a time of its own (flow_delay.sql), its uid and the projects of jobs that wait for it if it has
--   ended now (null: none waits).
WITH changes AS MATERIALIZED (
    SELECT * FROM ROWS FROM (unnest(%(workflows)s::bigint[]), unnest(%(completed)s::int[]), unnest(%(failed)s::int[]),
        unnest(%(cancelled)s::int[])) AS i(id, completed, failed, cancelled)
), counts AS MATERIALIZED (
    SELECT w.id, w.completed + changes.completed AS completed, w.failed + changes.failed AS failed,
        w.cancelled + changes.cancelled AS cancelled,
        -- Nodes that were added and have a turn to come are no part of the total yet.
        w.total + CASE WHEN w.completed + changes.completed + w.failed + changes.failed
                + w.cancelled + changes.cancelled < w.total
            THEN 0 ELSE (
            SELECT COALESCE(sum(cardinality(u.seqs)), 0) FROM leasequeue_flowturn u
            WHERE u.kind = {turn.EXTEND} AND u.key = w.id) END AS total,
        w.uid, w.ended_at, w.state, w.failed AS failed_before, w.on_failure, {now()} AS now
    FROM changes CROSS JOIN LATERAL (SELECT * FROM leasequeue_workflow w WHERE w.id = changes.id OFFSET 0) w
), done AS (
    UPDATE leasequeue_workflow w SET completed = counts.completed, failed = counts.failed, cancelled = counts.cancelled,
        state = CASE WHEN w.state = {workflow.CANCELLED} THEN {workflow.CANCELLED}
            WHEN counts.failed > 0 THEN {workflow.FAILED}
            WHEN counts.completed + counts.cancelled < counts.total THEN {workflow.RUNNING}
            WHEN counts.cancelled > 0 THEN {workflow.CANCELLED} ELSE {workflow.COMPLETED} END,
        ended_at = CASE WHEN counts.completed + counts.failed + counts.cancelled >= counts.total
            THEN COALESCE(w.ended_at, counts.now) END,
        expires_at = CASE WHEN counts.completed + counts.failed + counts.cancelled >= counts.total
            THEN counts.now + %(keep)s::bigint * interval '1 ms' END
    FROM counts WHERE w.id = counts.id AND w.id = ANY (%(workflows)s::bigint[])
    RETURNING w.id, w.state, w.ended_at
), starts AS (
    -- Once: the job waits for a failure as for a parent.
    UPDATE leasequeue_member m SET pending = m.pending - 1, waits = m.key IS NOT NULL AND m.pending = 1
        AND m.delay_ms IS NULL AND m.not_before IS NULL
    FROM counts WHERE m.seq = counts.on_failure AND m.seq = ANY (ARRAY(SELECT on_failure FROM counts)) AND m.pending > 0
        AND counts.failed > 0 AND counts.failed_before = 0
    RETURNING m.seq, m.pending
)
SELECT d.id, d.state::int, counts.on_failure, m.queue_id,
    EXISTS (SELECT FROM starts s WHERE s.seq = counts.on_failure AND s.pending = 0), m.key,
    COALESCE(m.timed, false), counts.uid::text, CASE WHEN d.ended_at IS NOT NULL AND counts.ended_at IS NULL THEN (
        SELECT array_agg(DISTINCT s.project) FROM (SELECT s.project FROM leasequeue_jobstep s
            WHERE s.event IS NOT NULL AND s.event = '$workflow:' || counts.uid LIMIT 10) s) END
FROM done d JOIN counts ON counts.id = d.id
LEFT JOIN LATERAL (SELECT m.queue_id, m.key, m.delay_ms IS NOT NULL OR m.not_before IS NOT NULL AS timed
    FROM leasequeue_member m WHERE m.seq = counts.on_failure OFFSET 0) m ON true
