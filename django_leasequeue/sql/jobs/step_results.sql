-- Purpose: jobs and workflows that jobs wait for (events named $result:NUMBER and $workflow:UID) and that have ended,
--   are dead or gone.
-- Parameters: event, project (of the last that was seen), size.
-- Index: leasequeue_jobstep_event, leasequeue_jobresult_pkey, leasequeue_deadletter_pkey, leasequeue_job_pkey,
--   leasequeue_workflow_uid_key.
-- Pages: 20 + 14 a row
WITH awaited AS MATERIALIZED (
    SELECT s.event, s.project, CASE WHEN s.event < '$result;' THEN substr(s.event, 9)::bigint END AS seq,
        CASE WHEN s.event >= '$workflow:' THEN substr(s.event, 11)::uuid END AS uid FROM leasequeue_jobstep s
    WHERE s.event IS NOT NULL AND s.event >= '$result:' AND s.event < '$workflow;'
        AND (s.event, s.project) > (%(event)s::text, %(project)s::text)
    ORDER BY s.event, s.project LIMIT %(size)s::int
)
SELECT awaited.event, awaited.project, CASE WHEN awaited.seq IS NULL
    THEN NOT EXISTS (SELECT FROM (SELECT f.state, f.ended_at FROM leasequeue_workflow f
        WHERE f.uid = awaited.uid OFFSET 0) f
        WHERE f.ended_at IS NULL AND f.state <> {workflow.CANCELLED})
    ELSE EXISTS (SELECT FROM leasequeue_jobresult r WHERE r.seq = awaited.seq OFFSET 0)
        OR EXISTS (SELECT FROM leasequeue_deadletter d WHERE d.seq = awaited.seq AND d.in_place OFFSET 0)
        OR NOT EXISTS (SELECT FROM leasequeue_job j WHERE j.seq = awaited.seq OFFSET 0) END
FROM awaited ORDER BY awaited.event, awaited.project
