-- Purpose: which of these jobs have a step: a redrive from that step skips the others.
-- Parameters: seqs (at most 1,000), name.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 20 + 6 a row
SELECT s.seq FROM leasequeue_jobstep s WHERE s.seq = ANY (%(seqs)s::bigint[]) AND s.name = %(name)s::text
