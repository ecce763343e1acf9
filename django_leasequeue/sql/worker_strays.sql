-- Purpose: what this node holds of claims whose answer was lost with a connection.
-- Parameters: queues (ids), node, known (ids of claims whose answer came), now.
-- Index: leasequeue_claim_deadline, the claims that have not expired; leasequeue_job_pkey.
-- Returns: seq, claim; at most 1,000, the oldest first.
WITH c AS MATERIALIZED (
    SELECT c.id, c.seqs FROM leasequeue_claim c
    WHERE c.queue_id = ANY (%(queues)s::bigint[]) AND c.node = %(node)s::text
        AND c.deadline >= COALESCE(%(now)s::timestamptz, clock_timestamp()) AND c.id <> ALL (%(known)s::bigint[])
)
SELECT j.seq, j.claim FROM leasequeue_job j
WHERE j.seq = ANY (ARRAY(SELECT unnest(c.seqs) FROM c)) AND j.claim = ANY (ARRAY(SELECT id FROM c)) AND j.state = 2
ORDER BY j.seq LIMIT 1000
