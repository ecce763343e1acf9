-- Purpose: jobs that a node holds by claims whose answer was lost, or that a dead node holds.
-- Parameters: queues (ids; null: any), node, known (tokens of claims whose answer came), size, now.
-- Index: leasequeue_claim_node: the live claims of the node.
-- Pages: 20 + 0.2 a row
SELECT u.seq, c.token FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.node = %(node)s::text AND (%(queues)s::bigint[] IS NULL OR c.queue_id = ANY (%(queues)s::bigint[]))
    AND c.deadline >= {now()} AND c.token <> ALL (%(known)s::bigint[])
ORDER BY u.seq LIMIT %(size)s::int
