-- Purpose: write the row of a worker.
-- Parameters: node, host, pid, project, queues, concurrency, state, age (seconds since its start), completed, failed,
--   retried, lost, running (json list), info (json object), now.
-- Index: the unique one on node.
-- Pages: 50
INSERT INTO leasequeue_worker AS w (node, host, pid, project, queues, concurrency, state, started_at, seen_at,
    completed, failed, retried, lost, running, info)
SELECT %(node)s::text, %(host)s::text, %(pid)s::int, %(project)s::text, %(queues)s::text[], %(concurrency)s::int,
    %(state)s::text, t.now - %(age)s::float8 * interval '1 s', t.now, %(completed)s::bigint, %(failed)s::bigint,
    %(retried)s::bigint, %(lost)s::bigint, %(running)s::jsonb, %(info)s::jsonb
FROM (SELECT {now()} AS now,
    CASE WHEN %(autocommit)s::bool THEN set_config('synchronous_commit', 'off', true) END) AS t
ON CONFLICT (node) DO UPDATE SET host = excluded.host, pid = excluded.pid, project = excluded.project,
    queues = excluded.queues, concurrency = excluded.concurrency, state = excluded.state,
    started_at = CASE WHEN w.pid = excluded.pid AND w.host = excluded.host THEN LEAST(w.started_at, excluded.started_at)
        ELSE excluded.started_at END,
    stop_requested_at = CASE WHEN w.pid = excluded.pid AND w.host = excluded.host THEN w.stop_requested_at END,
    seen_at = excluded.seen_at, completed = excluded.completed, failed = excluded.failed, retried = excluded.retried,
    lost = excluded.lost, running = excluded.running, info = excluded.info
RETURNING w.stop_requested_at
