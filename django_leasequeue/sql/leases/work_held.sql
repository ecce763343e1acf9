-- Purpose: which jobs these claims still hold (not acked, given back or expired), and which of them are to stop.
-- Parameters: seqs, claims (tokens), now.
-- Index: leasequeue_claim_pkey; of jobs of workflows leasequeue_member_pkey and leasequeue_workflow_pkey.
-- Pages: 30, and the live claims
SELECT u.seq, c.token, extract(epoch FROM c.deadline - t.now)::float8, c.flags & {FLOW} <> 0 AND {is_cancelled(u.seq)}
FROM (SELECT {now()} AS now) t, leasequeue_claim c
CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.token = ANY (%(claims)s::bigint[]) AND c.deadline >= t.now AND u.seq = ANY (%(seqs)s::bigint[])
