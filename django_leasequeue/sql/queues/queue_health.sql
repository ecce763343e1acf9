-- Purpose: what may be wrong with queues: who listens, expired leases that no reaper ends, floors that do not move.
-- Parameters: queues (ids), silent (seconds after which a worker is gone), old (seconds after which a lease is old), now.
-- Index: leasequeue_queue_pkey, leasequeue_worker_seen, leasequeue_claim_deadline from the floor on (at most 201 claims of a
--   queue), leasequeue_floor_place; pg_locks is in memory.
-- Pages: 20 + 0.1 a row
-- Returns: queue id, workers that take it, sessions that wait for it, deadline and job of a lease that is over, claim time, job
--   and node of a lease that is old, when its floors were raised last if that is long ago: those of times rise with the time.
WITH t AS MATERIALIZED (SELECT {now()} AS now), l AS MATERIALIZED (
    SELECT objid::bigint AS id, count(*) AS n FROM pg_locks
    WHERE locktype = 'advisory' AND classid = 1280657731 AND objsubid = 2 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    GROUP BY objid
), w AS MATERIALIZED (
    SELECT w.project, w.queues FROM leasequeue_worker w, t WHERE w.seen_at > t.now - %(silent)s::int * interval '1 s'
), q AS MATERIALIZED (
    SELECT q.id, q.project, q.name, 'epoch'::timestamptz + interval '1 us' * {floor(q.id, 2, 0)} AS since
    FROM leasequeue_queue q WHERE q.id = ANY (%(queues)s::bigint[])
)
SELECT q.id, (SELECT count(*) FROM w WHERE w.project = q.project AND q.name = ANY (w.queues))::int,
    COALESCE((SELECT l.n FROM l WHERE l.id = q.id), 0)::int, o.deadline, o.seq, a.created_at, a.seq, a.node, f.at
FROM q CROSS JOIN t
LEFT JOIN LATERAL (
    SELECT c.deadline, c.seqs[1] AS seq FROM leasequeue_claim c WHERE c.queue_id = q.id AND c.deadline >= q.since
        AND c.deadline < t.now - interval '1 minute' ORDER BY c.deadline LIMIT 1) o ON true
LEFT JOIN LATERAL (
    SELECT c.created_at, c.node, c.seqs[1] AS seq FROM (
        SELECT c.created_at, c.node, c.seqs FROM leasequeue_claim c WHERE c.queue_id = q.id AND c.deadline >= t.now
        ORDER BY c.deadline LIMIT 200) c
    WHERE c.created_at < t.now - %(old)s::int * interval '1 s' ORDER BY c.created_at LIMIT 1) a ON true
LEFT JOIN LATERAL (
    SELECT max(f.at) AS at FROM (VALUES (1), (2)) AS k(kind) CROSS JOIN LATERAL (
        SELECT f.made_at AS at FROM leasequeue_queuefloor f WHERE f.queue_id = q.id AND f.kind = k.kind AND f.rank = 0
        ORDER BY f.value DESC LIMIT 1) f) f ON f.at < t.now - interval '5 minutes'
ORDER BY q.id
