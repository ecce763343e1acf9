-- Purpose: jobs that wait for events, a batch at a time, for the reaper's search for missed events.
-- Parameters: event, project, seq (of the last that was seen), size.
-- Index: leasequeue_jobstep_event.
-- Pages: 20 + 2 a row
SELECT event, project, seq FROM leasequeue_jobstep
WHERE event IS NOT NULL AND (event, project, seq) > (%(event)s::text, %(project)s::text, %(seq)s::bigint)
ORDER BY event, project, seq LIMIT %(size)s::int
