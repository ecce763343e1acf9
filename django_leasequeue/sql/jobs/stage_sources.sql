-- Purpose: note the dead letters of replayed jobs.
-- Parameters: seqs, sources: arrays of one length (nulls: was not enqueued; was none).
-- Index: leasequeue_job_pkey.
-- Pages: 20 + 14 a row
UPDATE leasequeue_job j SET source_seq = (%(sources)s::bigint[])[array_position(%(seqs)s::bigint[], j.seq)]
WHERE j.seq = ANY (%(seqs)s::bigint[]) AND (%(sources)s::bigint[])[array_position(%(seqs)s::bigint[],
    j.seq)] IS NOT NULL
RETURNING j.seq
