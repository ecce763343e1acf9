-- Purpose: what this node holds of claims whose answer was lost with a connection.
-- Parameters: queues (ids), node, known (ids of claims whose answer came), now.
-- Index: leasequeue_claim_deadline, the claims that have not expired; leasequeue_job_pkey.
-- Returns: seq, claim; at most 1,000, the oldest first.
SELECT j.seq, j.claim FROM leasequeue_claim c
CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
JOIN leasequeue_job j ON j.seq = u.seq AND j.state = 2 AND j.claim = c.id
WHERE c.queue_id = ANY (%(queues)s::bigint[]) AND c.node = %(node)s::text
    AND c.deadline >= COALESCE(%(now)s::timestamptz, clock_timestamp()) AND c.id <> ALL (%(known)s::bigint[])
ORDER BY j.seq LIMIT 1000
