-- Purpose: lock the claims of a workflow's running jobs, of all its queues, in the order in which whoever ends jobs locks them.
-- Parameters: queues (ids), seqs.
-- Index: the live claims of the queues.
-- Pages: 20 + 4 a row, and the live claims
-- Returns: their tokens.
SELECT c.token FROM leasequeue_claim c WHERE c.queue_id = ANY (%(queues)s::bigint[]) AND c.seqs && %(seqs)s::bigint[]
ORDER BY c.token + 0, c.part FOR NO KEY UPDATE
