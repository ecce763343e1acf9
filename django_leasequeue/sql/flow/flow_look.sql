-- Purpose: look where members stand, and note it: slots that are free again, jobs that wait for their turn, nodes that
--   have ended or that run again. The caller holds the locks (flow_lock.sql).
-- Parameters: seqs (each once).
-- Index: leasequeue_member_pkey, leasequeue_job_pkey, leasequeue_jobresult_pkey, leasequeue_deadletter_pkey,
--   leasequeue_delayed_pkey, leasequeue_ready_pkey, leasequeue_workflow_pkey; leasequeue_jobstep_pkey.
-- Pages: 20 + 45 a row
WITH looked AS MATERIALIZED (
    SELECT m.seq, m.workflow, m.key, m.taken, m.waits, m.pending, m.state AS before,
        CASE WHEN r.state IS NOT NULL THEN r.state WHEN d.dead THEN {member.FAILED}
            -- One that has failed stays so when its dead letter is discarded.
            WHEN j.seq IS NULL THEN CASE WHEN m.state = {member.FAILED} THEN {member.FAILED} ELSE {member.CANCELLED} END
            -- What was cancelled for a parent's sake stays so until that parent runs again.
            WHEN m.state = {member.CANCELLED} AND w.waits THEN {member.CANCELLED} ELSE {member.OPEN} END AS state,
        COALESCE(w.waits, false) AS held, w.waits IS NULL AND j.seq IS NOT NULL AND r.state IS NULL
            AND d.dead IS NULL AS live,
        (r.state IS NOT NULL OR j.seq IS NULL) AND m.workflow IS NULL AS over,
        CASE WHEN f.cancelled AND j.seq IS NOT NULL AND d.dead IS NULL THEN m.queue_id END AS back,
        -- One that sleeps, or waits for an event, and goes on: its slot was its own all the time.
        m.taken AND COALESCE(w.keeps, false) AS keeps
    FROM leasequeue_member m
    LEFT JOIN LATERAL (SELECT r.state FROM leasequeue_jobresult r WHERE r.seq = m.seq OFFSET 0) r ON true
    -- A job with a result stands nowhere else.
    LEFT JOIN LATERAL (SELECT j.seq FROM leasequeue_job j WHERE j.seq = m.seq AND r.state IS NULL OFFSET 0) j ON true
    LEFT JOIN LATERAL (SELECT true AS dead FROM leasequeue_deadletter d
        WHERE d.seq = m.seq AND d.in_place AND r.state IS NULL OFFSET 0) d ON true
    LEFT JOIN LATERAL (SELECT w.available_at >= {HELD} AS waits, w.flags & {KEEPS_SLOT} <> 0 AS keeps
        FROM leasequeue_delayed w
        WHERE w.seq = m.seq AND r.state IS NULL OFFSET 0) w ON true
    LEFT JOIN LATERAL (SELECT true AS cancelled FROM leasequeue_workflow f
        WHERE f.id = m.workflow AND f.state = {workflow.CANCELLED} AND f.ended_at IS NULL
            AND NOT EXISTS (SELECT FROM leasequeue_jobstep s
                WHERE s.seq = m.seq AND s.name = '$undo' AND s.value ->> 'why' IS NOT NULL) OFFSET 0) f ON true
    WHERE m.seq = ANY (%(seqs)s::bigint[])
), kept AS (
    UPDATE leasequeue_member m SET state = looked.state, taken = m.taken AND (looked.live OR looked.keeps),
        waits = looked.held AND looked.key IS NOT NULL AND NOT looked.keeps AND looked.pending = 0
            AND looked.state = {member.OPEN}
    FROM looked WHERE m.seq = looked.seq AND m.seq = ANY (ARRAY(SELECT seq FROM looked WHERE NOT over))
), gone AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (ARRAY(SELECT seq FROM looked WHERE over))
)
SELECT seq, workflow, before::int, state::int, held AND (key IS NULL OR keeps) AND pending = 0
    AND state = {member.OPEN} AS free, back
FROM looked ORDER BY looked.seq
