-- Purpose: the number after which all jobs were made after a time, by bisection.
-- Parameters: at.
-- Index: leasequeue_job_pkey, one row a step, and what was rolled back or removed before it.
-- Pages: 3000
-- Returns: the number. (Numbers are drawn in the order of time but for what long transactions made.)
WITH RECURSIVE bounds AS (
    SELECT 0::bigint AS low, COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) + 1 AS high
    UNION ALL
    SELECT CASE WHEN p.created_at <= %(at)s::timestamptz THEN p.seq + 1 ELSE bounds.low END,
        CASE WHEN p.created_at <= %(at)s::timestamptz THEN GREATEST(bounds.high, p.seq + 1)
            ELSE (bounds.low + bounds.high) / 2 END
    FROM bounds LEFT JOIN LATERAL (
        SELECT j.seq, j.created_at FROM leasequeue_job j WHERE j.seq >= (bounds.low + bounds.high) / 2 ORDER BY j.seq
        LIMIT 1) p ON true
    WHERE bounds.low < bounds.high
)
SELECT max(low) FROM bounds
