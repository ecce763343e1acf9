-- Purpose: the state of a job by its key, in any queue of a project: the live job, else its kept result.
-- Parameters: project, key, now.
-- Index: leasequeue_job_key (leasequeue_keyed); one look each at leasequeue_jobresult_pkey, leasequeue_ready_pkey,
--   leasequeue_delayed_pkey, leasequeue_deadletter_pkey (with a column that the other indexes lack, else a planner who
--   thinks the table empty reads one of them alone), leasequeue_record_pkey, leasequeue_attempt_job. What stands
--   nowhere of these is leased: the claims of its queue are read, by leasequeue_claim_deadline from the floor on.
-- Pages: 50
-- Returns: at most one row. The state is the job's, or ENDED + the result's; the queue the one that it was enqueued to.
WITH known AS MATERIALIZED (
    SELECT j.*, p.state, p.deliveries, p.available_at, p.node, p.claimed_at, p.finished_at, p.result, q.name AS queue,
        q.priority_order
    FROM leasequeue_job j CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q
    LEFT JOIN LATERAL (
        SELECT {ENDED} + r.state AS state, r.deliveries, r.expires_at, NULL::timestamptz AS available_at, r.node,
            r.claimed_at, r.finished_at, r.result
        FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT {READY}, r.deliveries, NULL, NULL, NULL, NULL, NULL, NULL
        FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        -- What was cancelled in a workflow, with others before it, stands there until that is forgotten.
        SELECT CASE WHEN w.available_at < {CUT_OFF} THEN {DELAYED} ELSE {ENDED} + {result.CANCELLED} END,
            w.deliveries, NULL, w.available_at, NULL, NULL, NULL, NULL FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT {DEAD}, x.deliveries, x.expires_at, NULL, NULL, NULL, NULL, NULL
        FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
        UNION ALL
        SELECT {RECORD}, 0, NULL, NULL, NULL, NULL, NULL, NULL FROM leasequeue_record o
        WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        LIMIT 1) p ON true
    WHERE j.seq = ANY (ARRAY(SELECT k.seq FROM leasequeue_keyed(ARRAY[%(key)s::text]) k)) AND q.project = %(project)s
        AND (p.expires_at IS NULL
            OR p.expires_at > (SELECT {now()}))
        AND (q.dedup_until <> 'claimed' OR (p.state IN ({READY}, {DELAYED}) AND p.deliveries = 0))
    ORDER BY COALESCE(p.state, {READY}) >= {ENDED}, j.seq DESC LIMIT 1
), lease AS MATERIALIZED (
    SELECT c.node, c.created_at, COALESCE(c.deliveries[array_position(c.seqs, known.seq)], 1) AS deliveries
    FROM known CROSS JOIN LATERAL (
        SELECT * FROM leasequeue_claim c WHERE c.queue_id = known.queue_id AND known.seq = ANY (c.seqs)
            AND c.deadline >= {since(known.queue_id, {floor.CLAIM})}
        LIMIT 1) c
    WHERE known.state IS NULL
)
SELECT COALESCE(known.state, {LEASED}) AS state, COALESCE(s.name, known.queue) AS queue,
    CASE known.priority_order WHEN 'desc' THEN -known.rank WHEN 'asc' THEN known.rank ELSE 0 END AS priority,
    known.name, known.data::text, leasequeue_errors(known.seq)::text AS errors, known.result::text AS value,
    COALESCE(known.node, lease.node) AS node, COALESCE(known.deliveries, lease.deliveries, 1) AS deliveries,
    known.available_at, known.created_at,
    COALESCE(known.first_claimed_at, lease.created_at, known.claimed_at) AS first_claimed_at,
    COALESCE(lease.created_at, known.claimed_at, CASE WHEN known.deliveries = 1 THEN known.first_claimed_at
        ELSE GREATEST(known.first_claimed_at, a.at) END) AS claimed_at,
    COALESCE(known.finished_at, d.dead_at) AS finished_at, d.dead_at IS NOT NULL AS is_dead, known.meta::text,
    known.max_deliveries
FROM known LEFT JOIN lease ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_attempt a WHERE a.seq = known.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = known.seq AND d.deliveries >= 0 LIMIT 1) d
    ON true
LEFT JOIN leasequeue_queue s ON d.dead_at IS NOT NULL AND s.id = known.source_queue
