-- Purpose: give a job that unique_lock has locked another time to start. One that a limit or a workflow holds, or has let go, stays
--   where it is: they say when it starts.
-- Parameters: seq, run_at (null: delay; what is under a limit has one that never comes: now), delay (ms; null: now), now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey.
-- Pages: 60
-- Returns: the state in which it is when it is promoted: 0 ready, 1 delayed; whether it is due: promote it.
WITH j AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.rank, COALESCE(j.position, j.seq) AS position, t.now,
        GREATEST(t.now, CASE WHEN %(run_at)s::timestamptz < '9000-01-01 00:00+00' THEN %(run_at)s::timestamptz END,
            t.now + %(delay)s::bigint * interval '1 ms') AS due
    FROM leasequeue_job j, (SELECT {now()} AS now) t WHERE j.seq = %(seq)s::bigint
), ready AS (
    DELETE FROM leasequeue_ready r
    WHERE r.queue_id = (SELECT queue_id FROM j WHERE due > now) AND r.rank = (SELECT rank FROM j)
        AND r.lane = (SELECT s.lane FROM j, leasequeue_ready_at(j.queue_id, j.rank, j.position) s)
        AND r.position = (SELECT position FROM j) AND r.flags & 128 = 0
    RETURNING r.*
), put AS (
    INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, expires_at, tag)
    SELECT r.seq, r.queue_id, (SELECT due FROM j), 0, r.rank, r.flags, r.max_deliveries, r.expires_at, r.tag FROM ready r
    RETURNING seq
), moved AS (
    UPDATE leasequeue_delayed d SET available_at = (SELECT due FROM j)
    WHERE d.seq = (SELECT seq FROM j) AND (d.flags & 128 = 0 OR d.available_at < '9000-01-01 00:00+00')
    RETURNING d.seq, d.flags
)
SELECT CASE WHEN EXISTS (SELECT FROM put) THEN 1
        WHEN EXISTS (SELECT FROM moved) THEN (due > now OR (SELECT flags FROM moved) & 128 <> 0)::int
        ELSE EXISTS (SELECT FROM leasequeue_delayed d WHERE d.seq = j.seq)::int END,
    due <= now AND EXISTS (SELECT FROM moved)
FROM j
