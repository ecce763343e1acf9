-- Purpose: which jobs these claims still hold: not acked, given back or expired.
-- Parameters: seqs, claims (tokens), now.
-- Index: leasequeue_claim_pkey.
-- Pages: 30, and the live claims
-- Returns: seq, token, seconds until its deadline.
SELECT u.seq, c.token, extract(epoch FROM c.deadline - t.now)::float8
FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now) t, leasequeue_claim c
CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
WHERE c.token = ANY (%(claims)s::bigint[]) AND c.deadline >= t.now AND u.seq = ANY (%(seqs)s::bigint[])
