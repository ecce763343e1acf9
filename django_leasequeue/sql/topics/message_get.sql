-- Purpose: messages of a queue by number, leased or not.
-- Parameters: queue (id), seqs, now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey; for those that are not there the live claims of the queue.
-- Pages: 20 + 6 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now), messages AS MATERIALIZED (
    SELECT j.seq, j.created_at, j.expires_at, j.data::text AS data, j.name, r.seq IS NOT NULL AS free,
        r.expires_at AS over_at
    FROM (SELECT * FROM leasequeue_job j WHERE j.seq = ANY (%(seqs)s::bigint[]) OFFSET 0) j LEFT JOIN LATERAL (
        SELECT r.seq, r.expires_at FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        LIMIT 1) r ON true
    WHERE j.queue_id = %(queue)s::bigint
), claims AS MATERIALIZED (
    SELECT u.seq, c.token, c.deadline, c.deadline + c.grace_ms * interval '1 ms' AS over_at
    FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    WHERE c.queue_id = %(queue)s::bigint AND EXISTS (SELECT FROM messages WHERE NOT free)
        AND u.seq = ANY (ARRAY(SELECT seq FROM messages WHERE NOT free))
)
SELECT messages.seq, messages.created_at,
    CASE WHEN messages.free THEN messages.over_at
        WHEN messages.expires_at IS NOT NULL THEN GREATEST(messages.expires_at, claims.over_at) END AS expires_at,
    messages.data AS data_json, CASE WHEN claims.deadline >= clock.now THEN claims.token END AS claim,
    GREATEST(0, extract(epoch FROM clock.now - messages.created_at))::bigint AS age, messages.seq AS position,
    messages.name
FROM clock, messages LEFT JOIN claims ON claims.seq = messages.seq
WHERE claims.seq IS NOT NULL OR (messages.free AND (messages.over_at IS NULL OR messages.over_at > clock.now))
ORDER BY messages.seq
