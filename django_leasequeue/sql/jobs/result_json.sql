-- Purpose: the JSON result of one job, whatever its size.
-- Parameters: seq, now.
-- Index: leasequeue_jobresult_pkey.
-- Pages: 30
SELECT r.result::text FROM leasequeue_jobresult r
WHERE r.seq = %(seq)s::bigint AND r.expires_at > {now()}
