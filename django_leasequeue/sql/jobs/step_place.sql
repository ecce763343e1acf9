-- Purpose: what a worker that is named by its lease has to know before it keeps a step: whether it holds the job, and
--   what is kept.
-- Parameters: project, queue, seq, token, node, now.
-- Index: leasequeue_queue_pkey, leasequeue_claim_pkey, leasequeue_jobstep_pkey.
-- Pages: 60 + 2 a row
-- Returns: the delivery, how many steps are kept, the place of the last one in their order; no row: the lease is not
--   held.
SELECT COALESCE(c.deliveries[array_position(c.seqs, %(seq)s::bigint)], 1), s.kept, s.last
FROM leasequeue_claim c
CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
CROSS JOIN LATERAL (SELECT count(*)::int AS kept, COALESCE(max(s.number), 0) AS last FROM leasequeue_jobstep s
    WHERE s.seq = %(seq)s::bigint) s
WHERE c.token = %(token)s::bigint AND %(seq)s::bigint = ANY (c.seqs)
    AND {may_settle({now()})}
