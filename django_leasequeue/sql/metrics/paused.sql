-- Purpose: the number of each project's paused tasks, and of their jobs that workers gave back.
-- Parameters: size (of the jobs that are counted at most).
-- Index: leasequeue_delayed_put_off, leasequeue_job_pkey, leasequeue_queue_pkey, leasequeue_pausedtask_name.
-- Pages: 40 + 20 a row
SELECT p.project, count(*)::int AS tasks, COALESCE(sum(held.jobs), 0)::int AS jobs
FROM leasequeue_pausedtask p LEFT JOIN (
    SELECT q.project, j.name, count(*) AS jobs
    FROM (
        SELECT d.seq, d.queue_id FROM leasequeue_delayed d
        WHERE d.flags >= {PUT_OFF} AND EXISTS (SELECT FROM leasequeue_pausedtask) ORDER BY d.seq LIMIT %(size)s::int) d
    CROSS JOIN LATERAL (SELECT j.name FROM leasequeue_job j WHERE j.seq = d.seq OFFSET 0) j
    CROSS JOIN LATERAL (SELECT q.project FROM leasequeue_queue q WHERE q.id = d.queue_id OFFSET 0) q
    GROUP BY q.project, j.name
) held ON held.project = p.project AND held.name COLLATE "C" = p.name
GROUP BY p.project ORDER BY p.project
