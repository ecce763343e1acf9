-- group_counts(letters): how many of these dead letters d each of some groups has, until the cap is passed.
WITH RECURSIVE r AS (
    SELECT 0 AS n, 0::bigint AS counted, %(cap)s::bigint AS rest
    UNION ALL
    SELECT r.n + 1, c.counted, r.rest - c.counted FROM r CROSS JOIN LATERAL (
        SELECT count(*) AS counted FROM (
            SELECT FROM leasequeue_deadletter d WHERE d.queue_id = (%(queues)s::bigint[])[r.n + 1] AND {letters} LIMIT r.rest + 1) x) c
    WHERE r.n < cardinality(%(queues)s::bigint[]) AND r.rest >= 0
)
SELECT counted FROM r WHERE n > 0 ORDER BY n
