-- Purpose: messages of a queue in order, behind a marker, without those of one producer; held ones only on request. There is
--   no index of those: the live claims name them, and of those numbers the lowest within the page are looked at; the caller
--   goes on behind the last one while the page needs more. Delayed jobs are not there yet.
-- Parameters: queue (id), after (position), size (free ones; 0: none), held (number behind which held ones are looked for;
--   null: none), upto (number up to which; null: the end of the page), look (numbers), origin (left out; null: nobody), now.
-- Index: leasequeue_job_ready (rank 0, in order of position), leasequeue_claim_deadline from the floor on, leasequeue_job_pkey.
-- Returns: seq, created_at, expires_at, data, claim (null: free), age in whole seconds, position; last, if there may be more
--   held ones: the number looked at last, the rest null.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), free AS MATERIALIZED (
    SELECT j.seq, j.created_at, j.expires_at, j.data, NULL::bigint AS claim, j.position
    FROM leasequeue_job j
    WHERE j.queue_id = %(queue)s AND j.rank = 0 AND j.state = 0 AND j.position > %(after)s
        AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM t))
        AND (%(origin)s::text IS NULL OR j.origin IS DISTINCT FROM %(origin)s::text)
    ORDER BY j.position LIMIT %(size)s::int
), page AS MATERIALIZED (
    SELECT COALESCE(%(upto)s::bigint, CASE WHEN count(*) = %(size)s::int THEN max(position) END, 9223372036854775807) AS upto
    FROM free
), u AS MATERIALIZED (
    SELECT DISTINCT u.seq FROM page, leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    WHERE %(held)s::bigint IS NOT NULL AND c.queue_id = %(queue)s AND u.seq > %(held)s::bigint AND u.seq <= page.upto
        AND c.deadline >= 'epoch'::timestamptz + interval '1 us' * COALESCE((SELECT f.value FROM leasequeue_queuefloor f
            WHERE f.queue_id = %(queue)s AND f.kind = 2 AND f.rank = 0), 0)
    ORDER BY u.seq LIMIT %(look)s::int
), held AS MATERIALIZED (
    SELECT j.seq, j.created_at, j.expires_at, j.data, j.claim, j.position
    FROM leasequeue_job j
    WHERE j.seq = ANY (ARRAY(SELECT seq FROM u)) AND j.queue_id + 0 = %(queue)s AND j.state = 2
        AND (%(origin)s::text IS NULL OR j.origin IS DISTINCT FROM %(origin)s::text)
)
SELECT * FROM (
    SELECT m.seq, m.created_at, m.expires_at, m.data::text, m.claim,
        GREATEST(0, extract(epoch FROM t.now - m.created_at))::bigint, m.position
    FROM (SELECT * FROM free UNION ALL SELECT * FROM held) m, t
    UNION ALL
    SELECT max(seq), NULL, NULL, NULL, NULL, NULL, NULL FROM u HAVING count(*) = %(look)s::int
) x ORDER BY position NULLS LAST
