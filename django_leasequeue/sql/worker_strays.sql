-- Purpose: what this node holds of claims whose answer was lost with a connection.
-- Parameters: queues (ids), node, known (tokens of claims whose answer came), now.
-- Index: leasequeue_claim_node: the live claims of the node.
-- Returns: seq, claim; at most 1,000, the oldest first.
SELECT u.seq, c.token FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.node = %(node)s::text AND c.queue_id = ANY (%(queues)s::bigint[])
    AND c.deadline >= COALESCE(%(now)s::timestamptz, clock_timestamp()) AND c.token <> ALL (%(known)s::bigint[])
ORDER BY u.seq LIMIT 1000
