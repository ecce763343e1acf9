-- Purpose: what may be wrong with queues: who listens, leases that nobody ends, floors that do not move.
-- Parameters: queues (ids), silent (seconds after which a worker is gone), old (seconds after which a lease is old), now.
-- Index: leasequeue_queue_pkey, leasequeue_worker_seen, leasequeue_claim_deadline from the floor on (at most 200 claims of a
--   queue, and the jobs of 20), leasequeue_job_pkey, leasequeue_floor_place; pg_locks is in memory.
-- Returns: queue id, workers that take it, sessions that wait for it, deadline and job of a lease that is over, claim time, job
--   and node of a lease that is old, since when a floor waits to be moved.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), l AS MATERIALIZED (
    SELECT objid::bigint AS id, count(*) AS n FROM pg_locks
    WHERE locktype = 'advisory' AND classid = 1280657731 AND objsubid = 2 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    GROUP BY objid
), w AS MATERIALIZED (
    SELECT w.project, w.queues FROM leasequeue_worker w, t WHERE w.seen_at > t.now - %(silent)s::int * interval '1 s'
), q AS MATERIALIZED (
    SELECT q.id, q.project, q.name, COALESCE((SELECT 'epoch'::timestamptz + f.value * interval '1 us'
        FROM leasequeue_queuefloor f WHERE f.queue_id = q.id AND f.kind = 2 AND f.rank = 0), '-infinity') AS since
    FROM leasequeue_queue q WHERE q.id = ANY (%(queues)s::bigint[])
)
SELECT q.id, (SELECT count(*) FROM w WHERE w.project = q.project AND q.name = ANY (w.queues))::int,
    COALESCE((SELECT l.n FROM l WHERE l.id = q.id), 0)::int, o.deadline, o.seq, a.created_at, a.seq, a.node, f.since
FROM q CROSS JOIN t
LEFT JOIN LATERAL (
    SELECT j.deadline, j.seq FROM (
        SELECT c.id, c.seqs FROM leasequeue_claim c WHERE c.queue_id = q.id AND c.deadline >= q.since
            AND c.deadline < t.now - interval '1 minute' ORDER BY c.deadline LIMIT 20) c
    CROSS JOIN LATERAL (
        SELECT j.seq, j.deadline FROM leasequeue_job j WHERE j.seq = ANY (c.seqs) AND j.state = 2 AND j.claim = c.id
            AND j.deadline < t.now - interval '1 minute' LIMIT 1) j
    LIMIT 1) o ON true
LEFT JOIN LATERAL (
    SELECT c.created_at, c.node, j.seq FROM (
        SELECT c.* FROM (
            SELECT c.id, c.seqs, c.created_at, c.node FROM leasequeue_claim c WHERE c.queue_id = q.id
                AND c.deadline >= t.now ORDER BY c.deadline LIMIT 200) c
        WHERE c.created_at < t.now - %(old)s::int * interval '1 s' ORDER BY c.created_at LIMIT 20) c
    CROSS JOIN LATERAL (
        SELECT j.seq FROM leasequeue_job j WHERE j.seq = ANY (c.seqs) AND j.state = 2 AND j.claim = c.id LIMIT 1) j
    ORDER BY c.created_at LIMIT 1) a ON true
LEFT JOIN LATERAL (
    SELECT min(f.candidate_at) AS since FROM leasequeue_queuefloor f WHERE f.queue_id = q.id AND f.candidate > f.value
        AND f.candidate_at < t.now - interval '5 minutes') f ON true
ORDER BY q.id
