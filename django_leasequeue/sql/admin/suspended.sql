-- Purpose: jobs that sleep (the longest asleep first) or that wait for an event (by its name), for the list.
-- Parameters: waits (for events; else: sleep), at, event, project, seq (of the last one before), size (steps that are
--   looked at).
-- Index: leasequeue_jobstep_asleep, leasequeue_jobstep_event, leasequeue_delayed_pkey, leasequeue_job_pkey,
--   leasequeue_queue_pkey.
-- Pages: 20 + 14 a row
-- Returns: seq, since when, step, event, its project, until, whether it is suspended still (else the rest is null),
--   queue id, project, queue, task, key.
WITH steps AS MATERIALIZED (
    SELECT * FROM (SELECT s.seq, s.done_at, s.name, s.event, s.project, s.until FROM leasequeue_jobstep s
        WHERE %(waits)s::bool AND s.event IS NOT NULL
            AND (s.event, s.project, s.seq) > (%(event)s::text, %(project)s::text, %(seq)s::bigint)
        ORDER BY s.event, s.project, s.seq LIMIT %(size)s::int) a
    UNION ALL
    SELECT * FROM (SELECT s.seq, s.done_at, s.name, s.event, s.project, s.until FROM leasequeue_jobstep s
        WHERE NOT %(waits)s::bool AND s.value IS NULL AND s.event IS NULL
            AND (s.done_at, s.seq) > (%(at)s::timestamptz, %(seq)s::bigint)
        ORDER BY s.done_at, s.seq LIMIT %(size)s::int) b
)
SELECT steps.*, d.seq IS NOT NULL, q.id, q.project, q.name, j.name, j.key
FROM steps LEFT JOIN LATERAL (SELECT * FROM leasequeue_delayed d WHERE d.seq = steps.seq OFFSET 0) d ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = d.seq OFFSET 0) j ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q ON true
ORDER BY steps.event, CASE WHEN steps.event IS NULL THEN steps.done_at END, CASE
    WHEN steps.event IS NOT NULL THEN steps.project END, steps.seq
