-- Purpose: a live claim with the jobs that it still holds.
-- Parameters: queue (id), claim, now.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey.
-- Returns: per job: node, ttl_ms, age of the claim in whole seconds, seq, created_at, expires_at, data, age of the job;
--   nothing if the claim is over.
SELECT c.node, c.ttl_ms, GREATEST(0, extract(epoch FROM t.now - c.created_at))::bigint, j.seq, j.created_at, j.expires_at,
    j.data::text, GREATEST(0, extract(epoch FROM t.now - j.created_at))::bigint
FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now) t, leasequeue_claim c
JOIN leasequeue_job j ON j.seq = ANY (c.seqs) AND j.claim = c.id AND j.state = 2
WHERE c.id = %(claim)s AND c.queue_id + 0 = %(queue)s AND j.deadline >= t.now
ORDER BY j.seq
