-- Purpose: messages of a queue in order, behind a marker, without those of one producer; leased ones only on request.
-- Parameters: queue (id), after (seq, exclusive), origin (left out; null: nobody), leased (include them), size, now.
-- Index: leasequeue_job_ready (rank 0, in order of position), leasequeue_job_delayed is not read: a delayed job is not
--   there yet; leasequeue_job_pkey for the leased ones within the window of the page.
-- Returns: seq, created_at, expires_at, data, claim (null: free), age in whole seconds.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), free AS MATERIALIZED (
    SELECT j.seq, j.position, j.created_at, j.expires_at, j.data, NULL::bigint AS claim
    FROM leasequeue_job j
    WHERE j.queue_id = %(queue)s AND j.rank = 0 AND j.state = 0 AND j.position > %(after)s
        AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM t))
        AND (%(origin)s::text IS NULL OR j.origin IS DISTINCT FROM %(origin)s::text)
    ORDER BY j.position LIMIT %(size)s::int
), held AS MATERIALIZED (
    SELECT j.seq, j.position, j.created_at, j.expires_at, j.data, j.claim
    FROM leasequeue_job j
    WHERE %(leased)s::bool AND j.queue_id = %(queue)s AND j.state = 2 AND j.seq > %(after)s
        AND j.seq <= (SELECT CASE WHEN count(*) = %(size)s::int THEN max(position) ELSE 9223372036854775807 END FROM free)
        AND (%(origin)s::text IS NULL OR j.origin IS DISTINCT FROM %(origin)s::text)
    ORDER BY j.seq LIMIT %(size)s::int
)
SELECT m.seq, m.created_at, m.expires_at, m.data::text, m.claim,
    GREATEST(0, extract(epoch FROM t.now - m.created_at))::bigint, m.position
FROM (SELECT * FROM free UNION ALL SELECT * FROM held) m, t ORDER BY m.position LIMIT %(size)s::int
