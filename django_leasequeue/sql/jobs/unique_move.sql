-- Purpose: give a job that unique_lock has locked another time to start. One that a limit or a workflow holds, or has
--   let go, stays where it is: they say when it starts. One that a pause put off waits for its new time alone.
-- Parameters: seq, run_at (null: delay; what is under a limit has one that never comes: now), delay (ms; null: now),
--   now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey.
-- Pages: 60
-- Returns: the state in which it is when it is promoted (JobState: ready or delayed); whether it is due: promote it.
WITH job AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.rank, COALESCE(j.position, j.seq) AS position, t.now,
        GREATEST(t.now, CASE WHEN %(run_at)s::timestamptz < {HELD} THEN %(run_at)s::timestamptz END,
            t.now + %(delay)s::bigint * interval '1 ms') AS due
    FROM leasequeue_job j, (SELECT {now()} AS now) t WHERE j.seq = %(seq)s::bigint
), ready AS (
    DELETE FROM leasequeue_ready r
    WHERE r.queue_id = (SELECT queue_id FROM job WHERE due > now) AND r.rank = (SELECT rank FROM job)
        AND r.lane = (SELECT s.lane FROM job, leasequeue_ready_at(job.queue_id, job.rank, job.position) s)
        AND r.position = (SELECT position FROM job) AND r.flags & {FLOW} = 0
    RETURNING r.*
), put AS (
    {into_delayed()}
    SELECT r.seq, r.queue_id, (SELECT due FROM job), 0, r.rank, r.flags, r.max_deliveries, r.expires_at, r.tag
    FROM ready r
    RETURNING seq
), moved AS (
    UPDATE leasequeue_delayed d SET available_at = (SELECT due FROM job), flags = d.flags & ~{PUT_OFF}
    WHERE d.seq = (SELECT seq FROM job) AND (d.flags & {FLOW} = 0 OR d.available_at < {HELD})
    RETURNING d.seq, d.flags
)
SELECT CASE WHEN EXISTS (SELECT FROM put) THEN {DELAYED}
        WHEN EXISTS (SELECT FROM moved) THEN (due > now OR (SELECT flags FROM moved) & {FLOW} <> 0)::int
        ELSE EXISTS (SELECT FROM leasequeue_delayed d WHERE d.seq = job.seq)::int END,
    due <= now AND EXISTS (SELECT FROM moved)
FROM job
