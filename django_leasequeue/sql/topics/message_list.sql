-- Purpose: messages of a queue in order, behind a marker, without those of one producer; held ones only on request.
--   There is no index of those: the live claims name them, and of those numbers the lowest within the page are looked
--   at; the caller goes on behind the last one while the page needs more. Delayed jobs are not there yet.
-- Parameters: queue (id), after (position), size (free ones; 0: none), held (number behind which held ones are looked
--   for; null: none), upto (number up to which; null: the end of the page), look (numbers), origin (left out; null:
--   none), now.
-- Index: leasequeue_ready_pkey (rank 0, each lane in order of position), leasequeue_claim_deadline from the floor on,
--   leasequeue_job_pkey.
-- Pages: 20 + 6 a row
-- Returns: last, if there may be more held ones: the number looked at last, the rest null.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), free AS MATERIALIZED (
    SELECT m.* FROM (VALUES ({AGAIN}), ({FRESH})) AS l(lane) CROSS JOIN LATERAL (
        SELECT r.seq, j.created_at, r.expires_at, j.data, NULL::bigint AS claim, r.position, j.name
        FROM leasequeue_ready r
        CROSS JOIN LATERAL (SELECT j.created_at, j.data, j.origin, j.name FROM leasequeue_job j
            WHERE j.seq = r.seq OFFSET 0) j
        WHERE r.queue_id = %(queue)s::bigint AND r.rank = 0 AND r.lane = l.lane AND r.position > %(after)s::bigint
            AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM clock))
            AND (%(origin)s::text IS NULL OR j.origin IS DISTINCT FROM %(origin)s::text)
        ORDER BY r.position LIMIT %(size)s::int) m
    ORDER BY m.position LIMIT %(size)s::int
), page AS MATERIALIZED (
    SELECT COALESCE(%(upto)s::bigint, CASE WHEN count(*) = %(size)s::int THEN max(position) END,
        9223372036854775807) AS upto
    FROM free
), leased AS MATERIALIZED (
    SELECT u.seq, c.token, c.deadline + c.grace_ms * interval '1 ms' AS over_at
    FROM page, leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    WHERE %(held)s::bigint IS NOT NULL AND c.queue_id = %(queue)s::bigint AND u.seq > %(held)s::bigint
        AND u.seq <= page.upto
        AND c.deadline >= {since(%(queue)s::bigint, {floor.CLAIM})}
    ORDER BY u.seq LIMIT %(look)s::int
), held AS MATERIALIZED (
    SELECT j.seq, j.created_at, CASE WHEN j.expires_at IS NOT NULL THEN GREATEST(j.expires_at,
        leased.over_at) END AS expires_at, j.data, leased.token, COALESCE(j.position, j.seq) AS position, j.name
    FROM leased CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = leased.seq OFFSET 0) j
    WHERE %(origin)s::text IS NULL OR j.origin IS DISTINCT FROM %(origin)s::text
)
SELECT * FROM (
    SELECT m.seq, m.created_at, m.expires_at, m.data::text AS data_json, m.claim,
        GREATEST(0, extract(epoch FROM clock.now - m.created_at))::bigint AS age, m.position, m.name
    FROM (SELECT * FROM free UNION ALL SELECT * FROM held) m, clock
    UNION ALL
    SELECT max(seq), NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM leased HAVING count(*) = %(look)s::int
) x ORDER BY position NULLS LAST
