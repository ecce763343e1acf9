-- Purpose: which of these jobs have ended (after a lost connection, where nothing is told, and now and then).
-- Parameters: seqs.
-- Index: leasequeue_job_pkey.
-- Returns: the seqs that are not live any more.
SELECT s.seq FROM unnest(%(seqs)s::bigint[]) AS s(seq)
WHERE NOT EXISTS (SELECT FROM leasequeue_job j WHERE j.seq = s.seq AND j.state IN (0, 1, 2))
