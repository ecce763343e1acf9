-- Purpose: lock those of these jobs that are leased, with their claims: a step that is being committed is waited for.
-- Parameters: queue (id), seqs.
-- Index: leasequeue_claim_deadline: the live claims of the queue; leasequeue_job_pkey.
-- Pages: 20 + 18 a row
WITH claims AS MATERIALIZED (
    SELECT c.node, c.token, c.seqs FROM leasequeue_claim c
    WHERE c.queue_id = %(queue)s::bigint AND c.seqs && %(seqs)s::bigint[]
    ORDER BY c.token + 0, c.part FOR NO KEY UPDATE
), leased AS MATERIALIZED (
    SELECT claims.node, claims.token, u.seq FROM claims CROSS JOIN LATERAL unnest(claims.seqs) AS u(seq)
    WHERE u.seq = ANY (%(seqs)s::bigint[])
)
SELECT leased.node, leased.token, leased.seq FROM leased CROSS JOIN LATERAL (
    SELECT FROM leasequeue_job j WHERE j.seq = leased.seq FOR UPDATE) j
