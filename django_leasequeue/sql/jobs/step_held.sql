-- Purpose: whether a worker still holds the lease of a job, one of whose steps it could not keep.
-- Parameters: seq, token, node, now.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey.
-- Pages: 30
-- Returns: a row if it does.
SELECT c.token FROM leasequeue_claim c
WHERE c.token = %(token)s::bigint AND c.node = %(node)s::text AND %(seq)s::bigint = ANY (c.seqs)
    AND (c.deadline >= COALESCE(%(now)s::timestamptz, clock_timestamp())
        OR (SELECT q.late_ack FROM leasequeue_queue q WHERE q.id = c.queue_id) = 'accept')
