-- Purpose: how many dead letters each of some groups has; of all groups together no more than a cap are counted.
-- Parameters: queues (ids) and fingerprints, arrays of one length; cap.
-- Index: leasequeue_dead_size, which the condition on deliveries lets the planner use (index-only where vacuum has been).
-- Pages: 20 + 0.6 a row
-- Returns: counts in the order given; the last is too low, and the groups behind it are missing, where the sum is above the cap.
WITH RECURSIVE r AS (
    SELECT 0 AS n, 0::bigint AS counted, %(cap)s::bigint AS rest
    UNION ALL
    SELECT r.n + 1, c.counted, r.rest - c.counted FROM r CROSS JOIN LATERAL (
        SELECT count(*) AS counted FROM (
            SELECT FROM leasequeue_deadletter d WHERE d.queue_id = (%(queues)s::bigint[])[r.n + 1]
                AND d.fingerprint = (%(fingerprints)s::text[])[r.n + 1] AND d.deliveries < 2147483647
            LIMIT r.rest + 1) x) c
    WHERE r.n < cardinality(%(queues)s::bigint[]) AND r.rest >= 0
)
SELECT counted FROM r WHERE n > 0 ORDER BY n
