-- Purpose: what is known of client job ids: live jobs first, then remembered results.
-- Parameters: project, queue (null: any queue), keys, now.
-- Index: leasequeue_job_key (leasequeue_keyed); for each job one look at leasequeue_jobresult_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey,
--   leasequeue_deadletter_pkey, leasequeue_record_pkey. What stands nowhere of these is leased.
-- Pages: 20 + 16 a row
-- Returns: key, seq, state (job state, or 10 + result state).
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
)
SELECT j.key, j.seq, p.state FROM t, leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id
CROSS JOIN LATERAL (
    SELECT 10 + r.state AS state, r.expires_at, 1 AS deliveries FROM leasequeue_jobresult r WHERE r.seq = j.seq
    UNION ALL
    SELECT 0, NULL, r.deliveries FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
    UNION ALL
    SELECT 1, NULL, w.deliveries FROM leasequeue_delayed w WHERE w.seq = j.seq
    UNION ALL
    SELECT 3, x.expires_at, 1 FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
    UNION ALL
    SELECT 4, NULL, 0 FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
    UNION ALL
    SELECT 2, NULL, 1
    LIMIT 1) p
WHERE j.seq = ANY (ARRAY(SELECT k.seq FROM leasequeue_keyed(%(keys)s::text[]) k)) AND q.project = %(project)s
    AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
    AND (p.expires_at IS NULL OR p.expires_at > t.now) AND (q.dedup_until <> 'claimed' OR p.deliveries = 0)
ORDER BY p.state
