-- Purpose: signs of trouble of queues: listeners, expired leases that no reaper ends, floors that do not move.
-- Parameters: queues (ids), silent (seconds after which a worker is gone), old (seconds after which a lease is old),
--   now.
-- Index: leasequeue_queue_pkey, leasequeue_worker_seen, leasequeue_claim_deadline from the floor on (at most 201 claims
--   of a queue), leasequeue_floor_place; pg_locks is in memory; of queues not known to hold tasks leasequeue_ready_pkey
--   and leasequeue_job_pkey as worker_tasks.sql.
-- Pages: 20 + 0.2 a row
-- Returns: of leases that are over or old one each; when its floors were raised last only if that is long ago.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), listeners AS MATERIALIZED (
    SELECT objid::bigint AS id, count(*) AS n FROM pg_locks
    WHERE locktype = 'advisory' AND classid = {lock.listeners}::oid AND objsubid = 2 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    GROUP BY objid
), workers AS MATERIALIZED (
    SELECT w.project, w.queues FROM leasequeue_worker w, clock
    WHERE w.seen_at > clock.now - %(silent)s::int * interval '1 s'
), queues AS MATERIALIZED (
    SELECT q.id, q.project, q.name, q.holds_tasks, {since(q.id, {floor.CLAIM})} AS since
    FROM leasequeue_queue q WHERE q.id = ANY (%(queues)s::bigint[])
)
SELECT queues.id AS queue_id,
    (SELECT count(*) FROM workers WHERE workers.project = queues.project
        AND queues.name = ANY (workers.queues))::int AS workers,
    COALESCE((SELECT listeners.n FROM listeners WHERE listeners.id = queues.id), 0)::int AS waiting,
    o.deadline AS overdue, o.seq AS overdue_seq, a.created_at AS old, a.seq AS old_seq, a.node AS old_node,
    f.at AS floor_since, queues.holds_tasks OR {holds_task(queues.id)} AS tasks
FROM queues CROSS JOIN clock
LEFT JOIN LATERAL (
    SELECT c.deadline, c.seqs[1] AS seq FROM leasequeue_claim c WHERE c.queue_id = queues.id
        AND c.deadline >= queues.since
        AND c.deadline < clock.now - interval '1 minute' ORDER BY c.deadline LIMIT 1) o ON true
LEFT JOIN LATERAL (
    SELECT c.created_at, c.node, c.seqs[1] AS seq FROM (
        SELECT c.created_at, c.node, c.seqs FROM leasequeue_claim c WHERE c.queue_id = queues.id
            AND c.deadline >= clock.now
        ORDER BY c.deadline LIMIT 200) c
    WHERE c.created_at < clock.now - %(old)s::int * interval '1 s' ORDER BY c.created_at LIMIT 1) a ON true
LEFT JOIN LATERAL (
    SELECT max(f.at) AS at FROM (VALUES ({floor.DELAYED}), ({floor.CLAIM})) AS k(kind) CROSS JOIN LATERAL (
        SELECT f.made_at AS at FROM leasequeue_queuefloor f WHERE f.queue_id = queues.id AND f.kind = k.kind
            AND f.rank = 0
        ORDER BY f.value DESC LIMIT 1) f) f ON f.at < clock.now - interval '5 minutes'
ORDER BY queues.id
