-- Purpose: the tokens of jobs that a node holds, for settle calls that name no token.
-- Parameters: project, queue (null: any), node, seqs.
-- Index: leasequeue_claim_node: the live claims of the node.
-- Returns: seq, token.
SELECT u.seq, c.token
FROM leasequeue_claim c JOIN leasequeue_queue q ON q.id = c.queue_id
CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.node = %(node)s::text AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
    AND u.seq = ANY (%(seqs)s::bigint[])
