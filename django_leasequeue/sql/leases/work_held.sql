-- Purpose: which jobs these claims still hold (not acked, given back or expired), and which of them are to stop.
-- Parameters: seqs, claims (tokens), now.
-- Index: leasequeue_claim_pkey; of jobs of workflows leasequeue_member_pkey and leasequeue_workflow_pkey.
-- Pages: 30, and the live claims
-- Returns: seq, token, seconds until its deadline, whether its workflow is being cancelled.
SELECT u.seq, c.token, extract(epoch FROM c.deadline - t.now)::float8,
    c.flags & 128 <> 0 AND EXISTS (
        SELECT FROM (SELECT m.workflow FROM leasequeue_member m WHERE m.seq = u.seq OFFSET 0) m CROSS JOIN LATERAL (
            SELECT FROM leasequeue_workflow w WHERE w.id = m.workflow AND w.state = 3 AND w.ended_at IS NULL OFFSET 0) w)
FROM (SELECT {now()} AS now) t, leasequeue_claim c
CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.token = ANY (%(claims)s::bigint[]) AND c.deadline >= t.now AND u.seq = ANY (%(seqs)s::bigint[])
