-- group_counts(letters): how many of these dead letters d each of some groups has, until the cap is passed: then the
-- last count is too low, and the groups behind it are missing.
WITH RECURSIVE counting AS (
    SELECT 0 AS n, 0::bigint AS counted, %(cap)s::bigint AS rest
    UNION ALL
    SELECT counting.n + 1, c.counted, counting.rest - c.counted FROM counting CROSS JOIN LATERAL (
        SELECT count(*) AS counted FROM (
            SELECT FROM leasequeue_deadletter d WHERE d.queue_id = (%(queues)s::bigint[])[counting.n + 1] AND {letters}
            LIMIT counting.rest + 1) x) c
    WHERE counting.n < cardinality(%(queues)s::bigint[]) AND counting.rest >= 0
)
SELECT counted FROM counting WHERE n > 0 ORDER BY n
