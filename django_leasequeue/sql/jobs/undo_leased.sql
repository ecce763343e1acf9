-- Purpose: who holds these jobs, which have steps to undo: they are taken from their workers.
-- Parameters: queue (id), seqs.
-- Index: leasequeue_claim_deadline: the live claims of the queue.
-- Pages: 60 + 0.1 a row
-- Returns: node, token, seq.
SELECT c.node, c.token, u.seq FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.queue_id = %(queue)s::bigint AND c.seqs && %(seqs)s::bigint[] AND u.seq = ANY (%(seqs)s::bigint[])
