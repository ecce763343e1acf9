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
    LEFT JOIN LATERAL ({place_of(j)}) p ON true
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND q.project = %(project)s
        AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
), leases AS MATERIALIZED (
    {leases_of(known)}
)
SELECT known.seq, CASE WHEN known.state IS NULL THEN COALESCE(leases.node, '') END, leases.token,
    COALESCE(leases.deadline < {now()}, false)
FROM known LEFT JOIN leases ON leases.seq = known.seq WHERE (known.state >= {ENDED}) IS NOT TRUE
