-- Purpose: which of these jobs have steps to undo.
-- Parameters: seqs.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 20 + 4 a row
-- Returns: seq, whether it undoes them already.
SELECT u.seq, s.value ->> 'why' IS NOT NULL FROM unnest(%(seqs)s::bigint[]) AS u(seq) CROSS JOIN LATERAL (
    SELECT s.value FROM leasequeue_jobstep s WHERE s.seq = u.seq AND s.name = '$undo' OFFSET 0) s
WHERE s.value ->> 'done' IS NULL
