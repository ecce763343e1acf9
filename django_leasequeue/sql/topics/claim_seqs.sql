-- Purpose: the node of a live claim, and the jobs that it still holds.
-- Parameters: queue (id), claim (token), now.
-- Index: leasequeue_claim_pkey.
-- Pages: 30
SELECT min(c.node), array_agg(u.seq ORDER BY u.seq) FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.token = %(claim)s::bigint AND c.queue_id + 0 = %(queue)s::bigint AND c.deadline >= {now()}
HAVING count(*) > 0
