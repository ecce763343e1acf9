-- Purpose: the tokens of jobs that a node holds, for acks and nacks without a token.
-- Parameters: project, queue (null: any), node, seqs.
-- Index: leasequeue_claim_node: the live claims of the node.
-- Pages: 60 + 0.1 a row
SELECT u.seq, c.token
FROM leasequeue_claim c
CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.node = %(node)s::text AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
    AND u.seq = ANY (%(seqs)s::bigint[])
