-- leases_of(jobs): seq, token, node, deadline, created_at, grace_ms and deliveries of those of these jobs (queue_id,
-- seq, state: null) that stand nowhere else: the claims are read once, by leasequeue_claim_deadline from the floor on.
SELECT u.seq, c.token, c.node, c.deadline, c.created_at, c.grace_ms, COALESCE(u.deliveries, 1) AS deliveries
FROM (SELECT queue_id, array_agg(seq) AS seqs FROM {jobs} WHERE state IS NULL GROUP BY queue_id) unplaced
CROSS JOIN LATERAL (
    SELECT * FROM leasequeue_claim c WHERE c.queue_id = unplaced.queue_id
        AND (cardinality(unplaced.seqs) > 8 OR c.seqs && unplaced.seqs)
        AND c.deadline >= {since(unplaced.queue_id, {floor.CLAIM})}
    OFFSET 0) c
CROSS JOIN LATERAL unnest(c.seqs, c.deliveries) AS u(seq, deliveries)
WHERE (u.seq IN (SELECT seq FROM {jobs} WHERE state IS NULL)) IS TRUE
