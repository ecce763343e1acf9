-- Purpose: why an ack or nack refused these jobs.
-- Parameters: project, queue (null: any), seqs, now.
-- Index: leasequeue_job_pkey; for each job one look at leasequeue_jobresult_pkey, leasequeue_ready_pkey,
--   leasequeue_delayed_pkey, leasequeue_deadletter_pkey, leasequeue_record_pkey. What stands nowhere of these is
--   leased: its queue's claims are read once, by leasequeue_claim_deadline from the floor on.
-- Pages: 20 + 19 a row, and the live claims
-- Returns: seq, node (null: not leased), claim, whether the deadline has passed; no row for what is finished or not
--   there.
WITH known AS MATERIALIZED (
    SELECT j.seq, j.queue_id, p.state
    FROM leasequeue_job j CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = j.queue_id OFFSET 0) q
    LEFT JOIN LATERAL (
        SELECT {ENDED} AS state FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT {READY} FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT {DELAYED} FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT {DEAD} FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
        UNION ALL
        SELECT {RECORD} FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        LIMIT 1) p ON true
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND q.project = %(project)s
        AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
), leases AS MATERIALIZED (
    {leases_of(known)}
)
SELECT known.seq, CASE WHEN known.state IS NULL THEN COALESCE(leases.node, '') END, leases.token,
    COALESCE(leases.deadline < {now()}, false)
FROM known LEFT JOIN leases ON leases.seq = known.seq WHERE known.state IS DISTINCT FROM {ENDED}
