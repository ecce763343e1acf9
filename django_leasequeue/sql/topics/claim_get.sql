-- Purpose: a live claim with the jobs that it still holds.
-- Parameters: queue (id), claim (token), now.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey.
-- Pages: 20 + 4 a row
-- Returns: of each job the claim, then a Message without its claim and position; nothing if the claim is over.
SELECT c.node, c.ttl_ms, GREATEST(0, extract(epoch FROM t.now - c.created_at))::bigint, j.seq, j.created_at,
    CASE WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at, c.deadline + c.grace_ms * interval '1 ms') END,
    j.data::text, GREATEST(0, extract(epoch FROM t.now - j.created_at))::bigint, j.name
FROM (SELECT {now()} AS now) t, leasequeue_claim c
CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = ANY (c.seqs) OFFSET 0) j
WHERE c.token = %(claim)s::bigint AND c.queue_id + 0 = %(queue)s::bigint AND c.deadline >= t.now
ORDER BY j.seq
