-- Purpose: which of these jobs have kept a step: a redrive that forgets it leaves the others alone.
-- Parameters: seqs (at most 1,000), name.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 20 + 6 a row
-- Returns: seq.
SELECT s.seq FROM leasequeue_jobstep s WHERE s.seq = ANY (%(seqs)s::bigint[]) AND s.name = %(name)s::text
