-- Purpose: what is known of a job by its key, in any queue of a project: the live job, else its remembered result.
-- Parameters: project, key, now.
-- Index: leasequeue_job_key (leasequeue_keyed); one look each at leasequeue_jobresult_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey,
--   leasequeue_deadletter_pkey (with a column that the other indexes lack, else a planner who thinks the table empty reads one of
--   them alone), leasequeue_record_pkey, leasequeue_attempt_job. What stands nowhere of these is leased: the
--   claims of its queue are read, by leasequeue_claim_deadline from the floor on.
-- Pages: 50
-- Returns: at most one row: state (job state, or 10 + result state), queue (the one it was enqueued to), priority, name,
--   data, errors, result, node, deliveries, run_at, created_at, first_claimed_at, claimed_at, finished_at, whether it
--   is a dead letter, meta, max_deliveries (the job's own, null for its queue's).
WITH p AS MATERIALIZED (
    SELECT j.*, p.state, p.deliveries, p.available_at, p.node, p.claimed_at, p.finished_at, p.result, q.name AS queue,
        q.priority_order
    FROM leasequeue_job j CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q
    LEFT JOIN LATERAL (
        SELECT 10 + r.state AS state, r.deliveries, r.expires_at, NULL::timestamptz AS available_at, r.node, r.claimed_at,
            r.finished_at, r.result
        FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT 0, r.deliveries, NULL, NULL, NULL, NULL, NULL, NULL FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        -- What was cancelled in a workflow, with others before it, stands there until that is forgotten.
        SELECT CASE WHEN w.available_at < '9001-01-01 00:00+00' THEN 1 ELSE 13 END, w.deliveries, NULL, w.available_at, NULL, NULL,
            NULL, NULL FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT 3, x.deliveries, x.expires_at, NULL, NULL, NULL, NULL, NULL
        FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
        UNION ALL
        SELECT 4, 0, NULL, NULL, NULL, NULL, NULL, NULL FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        LIMIT 1) p ON true
    WHERE j.seq = ANY (ARRAY(SELECT k.seq FROM leasequeue_keyed(ARRAY[%(key)s::text]) k)) AND q.project = %(project)s AND (p.expires_at IS NULL
            OR p.expires_at > (SELECT {now()}))
        AND (q.dedup_until <> 'claimed' OR (p.state IN (0, 1) AND p.deliveries = 0))
    ORDER BY COALESCE(p.state, 0) >= 10, j.seq DESC LIMIT 1
), h AS MATERIALIZED (
    SELECT c.node, c.created_at, COALESCE(c.deliveries[array_position(c.seqs, p.seq)], 1) AS deliveries
    FROM p CROSS JOIN LATERAL (
        SELECT * FROM leasequeue_claim c WHERE c.queue_id = p.queue_id AND p.seq = ANY (c.seqs)
            AND c.deadline >= 'epoch'::timestamptz + interval '1 us' * {floor(p.queue_id, 2, 0)}
        LIMIT 1) c
    WHERE p.state IS NULL
)
SELECT COALESCE(p.state, 2), COALESCE(s.name, p.queue),
    CASE p.priority_order WHEN 'desc' THEN -p.rank WHEN 'asc' THEN p.rank ELSE 0 END, p.name, p.data::text,
    leasequeue_errors(p.seq)::text, p.result::text, COALESCE(p.node, h.node), COALESCE(p.deliveries, h.deliveries, 1),
    p.available_at, p.created_at, COALESCE(p.first_claimed_at, h.created_at, p.claimed_at),
    COALESCE(h.created_at, p.claimed_at, CASE WHEN p.deliveries = 1 THEN p.first_claimed_at
        ELSE GREATEST(p.first_claimed_at, a.at) END),
    COALESCE(p.finished_at, d.dead_at), d.dead_at IS NOT NULL, p.meta::text, p.max_deliveries
FROM p LEFT JOIN h ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = p.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = p.seq AND d.deliveries >= 0 LIMIT 1) d ON true
LEFT JOIN leasequeue_queue s ON d.dead_at IS NOT NULL AND s.id = p.source_queue
