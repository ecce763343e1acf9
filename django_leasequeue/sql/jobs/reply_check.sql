-- Purpose: which of these jobs have ended, for callers without notifications (and as a backstop).
-- Parameters: seqs.
-- Index: leasequeue_job_pkey, leasequeue_jobresult_pkey, leasequeue_deadletter_pkey, leasequeue_record_pkey.
-- Pages: 110
SELECT s.seq FROM unnest(%(seqs)s::bigint[]) AS s(seq)
LEFT JOIN LATERAL (
    SELECT j.queue_id, j.seq FROM leasequeue_job j WHERE j.seq = s.seq AND j.seq = ANY (%(seqs)s::bigint[]) OFFSET 0) j
        ON true
WHERE j.seq IS NULL
    OR EXISTS (SELECT FROM leasequeue_jobresult r WHERE r.seq = s.seq OFFSET 0)
    OR EXISTS (SELECT FROM leasequeue_deadletter d WHERE d.seq = s.seq AND d.in_place OFFSET 0)
    OR EXISTS (SELECT FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = s.seq OFFSET 0)
