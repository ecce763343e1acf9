-- Purpose: jobs that others wait for (events named $result:NUMBER) and that have ended, are dead or gone.
-- Parameters: event, project (of the last that was seen), size.
-- Index: leasequeue_jobstep_event, leasequeue_jobresult_pkey, leasequeue_deadletter_pkey, leasequeue_job_pkey.
-- Pages: 20 + 14 a row
-- Returns: event, project, whether it has ended.
WITH w AS MATERIALIZED (
    SELECT s.event, s.project, substr(s.event, 9)::bigint AS seq FROM leasequeue_jobstep s
    WHERE s.event IS NOT NULL AND s.event >= '$result:' AND s.event < '$result;' AND (s.event, s.project) > (%(event)s::text, %(project)s::text)
    ORDER BY s.event, s.project LIMIT %(size)s::int
)
SELECT w.event, w.project, EXISTS (SELECT FROM leasequeue_jobresult r WHERE r.seq = w.seq OFFSET 0)
    OR EXISTS (SELECT FROM leasequeue_deadletter d WHERE d.seq = w.seq AND d.in_place OFFSET 0)
    OR NOT EXISTS (SELECT FROM leasequeue_job j WHERE j.seq = w.seq OFFSET 0)
FROM w ORDER BY w.event, w.project
