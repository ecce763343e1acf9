-- Purpose: which leases of streams still stand: not acked, given back, expired or taken by somebody else.
-- Parameters: seqs, claims of the same order, now.
-- Index: leasequeue_job_pkey.
-- Returns: seq, seconds until its deadline.
SELECT j.seq, extract(epoch FROM j.deadline - COALESCE(%(now)s::timestamptz, clock_timestamp()))::float8
FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[])) AS u(seq, claim)
JOIN leasequeue_job j ON j.seq = u.seq
WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.state = 2 AND j.claim = u.claim AND j.deadline >= COALESCE(%(now)s::timestamptz, clock_timestamp())
