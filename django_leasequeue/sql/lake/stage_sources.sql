-- Purpose: note which dead letters replayed jobs were.
-- Parameters: seqs, sources: arrays of one length (nulls: was not enqueued; was none).
-- Index: leasequeue_job_pkey.
UPDATE leasequeue_job j SET source_seq = i.source FROM unnest(%(seqs)s::bigint[], %(sources)s::bigint[]) AS i(seq, source)
WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.seq = i.seq AND i.source IS NOT NULL
RETURNING j.seq
