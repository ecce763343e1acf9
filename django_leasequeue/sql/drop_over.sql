-- Purpose: remove dead jobs whose retention is over, by number, so that their keys are free.
-- Parameters: seqs, now.
-- Index: leasequeue_job_pkey.
-- Returns: the seqs that went.
DELETE FROM leasequeue_job j
WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.state = 3
    AND j.expires_at <= COALESCE(%(now)s::timestamptz, clock_timestamp())
RETURNING j.seq
