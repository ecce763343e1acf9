-- Purpose: messages of a queue by number, whoever holds them.
-- Parameters: queue (id), seqs, now.
-- Index: leasequeue_job_pkey.
-- Returns: seq, created_at, expires_at, data, claim (null: free), age in whole seconds.
SELECT j.seq, j.created_at, j.expires_at, j.data::text, CASE WHEN j.state = 2 AND j.deadline >= t.now THEN j.claim END,
    GREATEST(0, extract(epoch FROM t.now - j.created_at))::bigint
FROM leasequeue_job j, (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now) t
WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.queue_id + 0 = %(queue)s AND j.state IN (0, 2)
    AND (j.state = 2 OR j.expires_at IS NULL OR j.expires_at > t.now)
ORDER BY j.seq
