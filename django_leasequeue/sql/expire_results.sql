-- Purpose: remove results whose retention is over, oldest first, a bounded batch at a time.
-- Parameters: size, now.
-- Index: leasequeue_result_expires, leasequeue_jobresult_pkey.
-- Returns: the seqs that went.
DELETE FROM leasequeue_jobresult WHERE seq = ANY (ARRAY(
    SELECT seq FROM leasequeue_jobresult
    WHERE expires_at <= (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()))
    ORDER BY expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED))
RETURNING seq
