-- Purpose: messages of a queue by number, leased or not.
-- Parameters: queue (id), seqs, now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey; for those that are not there the live claims of the queue.
-- Pages: 20 + 6 a row
-- Returns: seq, created_at, expires_at, data, claim (null: free), age in whole seconds, and the number as its place.
WITH t AS MATERIALIZED (SELECT {now()} AS now), j AS MATERIALIZED (
    SELECT j.seq, j.created_at, j.expires_at, j.data::text AS data, r.seq IS NOT NULL AS free, r.expires_at AS over_at
    FROM (SELECT * FROM leasequeue_job j WHERE j.seq = ANY (%(seqs)s::bigint[]) OFFSET 0) j LEFT JOIN LATERAL (
        SELECT r.seq, r.expires_at FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r LIMIT 1) r ON true
    WHERE j.queue_id = %(queue)s::bigint
), c AS MATERIALIZED (
    SELECT u.seq, c.token, c.deadline, c.deadline + c.grace_ms * interval '1 ms' AS over_at
    FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    WHERE c.queue_id = %(queue)s::bigint AND EXISTS (SELECT FROM j WHERE NOT free)
        AND u.seq = ANY (ARRAY(SELECT seq FROM j WHERE NOT free))
)
SELECT j.seq, j.created_at, CASE WHEN j.free THEN j.over_at WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at, c.over_at) END,
    j.data, CASE WHEN c.deadline >= t.now THEN c.token END, GREATEST(0, extract(epoch FROM t.now - j.created_at))::bigint, j.seq
FROM t, j LEFT JOIN c ON c.seq = j.seq
WHERE c.seq IS NOT NULL OR (j.free AND (j.over_at IS NULL OR j.over_at > t.now))
ORDER BY j.seq
