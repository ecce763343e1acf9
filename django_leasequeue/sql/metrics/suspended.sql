-- Purpose: the number of jobs of each project that sleep or wait for an event, and the age of the oldest.
-- Parameters: size (of each kind that are counted at most), now.
-- Index: leasequeue_jobstep_asleep, leasequeue_jobstep_event, leasequeue_delayed_pkey, leasequeue_queue_pkey.
-- Pages: 100 + 8 a row
SELECT q.project, g.kind, sum(g.jobs)::int AS jobs, EXTRACT(epoch FROM {now()} - min(g.since))::float8 AS oldest
FROM (
    SELECT k.kind, suspended.queue_id, count(*) AS jobs, min(suspended.done_at) AS since
    FROM (VALUES ('sleep'), ('event')) AS k(kind) LEFT JOIN LATERAL (
        SELECT s.done_at, d.queue_id FROM (
            SELECT * FROM (SELECT s.seq, s.done_at FROM leasequeue_jobstep s
                WHERE k.kind = 'sleep' AND s.value IS NULL AND s.event IS NULL
                ORDER BY s.done_at, s.seq LIMIT %(size)s::int) a
            UNION ALL
            SELECT * FROM (SELECT s.seq, s.done_at FROM leasequeue_jobstep s
                WHERE k.kind = 'event' AND s.event IS NOT NULL
                ORDER BY s.event, s.project, s.seq LIMIT %(size)s::int) b) s
        CROSS JOIN LATERAL (SELECT d.queue_id FROM leasequeue_delayed d WHERE d.seq = s.seq OFFSET 0) d) suspended
        ON true
    GROUP BY k.kind, suspended.queue_id OFFSET 0) g
CROSS JOIN LATERAL (SELECT q.project FROM leasequeue_queue q WHERE q.id = g.queue_id OFFSET 0) q
GROUP BY q.project, g.kind ORDER BY q.project, g.kind
