-- Purpose: what happened in the last time to the jobs of queues, by bucket of time. Exact while there are at most size rows of the
--   log a bucket on average, in one pass; beyond it a bucket with more than size rows is estimated from its first ones and the
--   time that they took. Waits are those of at most about 50,000 first claims, evenly chosen.
-- Parameters: queue (id; null: each), seconds (how far back), bucket (seconds), size, now.
-- Index: leasequeue_event_occurred (BRIN) of each partition. No order inside: the heap is in the order of time, and reading
--   stops at the limit. (Run it under admin/plans: a planner that trusts the limit reads the table from its beginning.)
-- Pages: 20 + 0.6 a row
-- Host: as admin/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: queue id (null: all together), bucket (0 = oldest; null: the whole time), how many events each that was read
--   stands for at most, enqueued, claimed, acked, failed, released or expired, dead; waits p50 and p99 (seconds from when a
--   job was ready to its first claim, of the events that were read).
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), w AS MATERIALIZED (
    SELECT v.id, v.queue_id, v.kind, v.occurred_at, cardinality(v.seqs) AS n, CASE WHEN v.kind = 2 THEN v.waited END AS waited,
        CASE WHEN v.kind = 2 THEN v.deliveries END AS deliveries
    FROM leasequeue_leaseevent v WHERE v.occurred_at >= (SELECT now FROM t) - %(seconds)s::int * interval '1 s'
    LIMIT %(size)s::int * (%(seconds)s::int / %(bucket)s::int) + 1
), f AS MATERIALIZED (
    SELECT count(*) <= %(size)s::int * (%(seconds)s::int / %(bucket)s::int) AS few FROM w
), s AS MATERIALIZED (
    SELECT i AS bucket, t.now - (%(seconds)s::int - i * %(bucket)s::int) * interval '1 s' AS low
    FROM t, generate_series(0, %(seconds)s::int / %(bucket)s::int - 1) AS i
), v AS MATERIALIZED (
    SELECT s.bucket, s.low, w.*, true AS whole FROM w JOIN f ON f.few
    CROSS JOIN t JOIN s ON s.bucket = LEAST(floor((extract(epoch FROM w.occurred_at - t.now) + %(seconds)s::int)
        / %(bucket)s::int)::int, %(seconds)s::int / %(bucket)s::int - 1)
    UNION ALL
    SELECT s.bucket, s.low, v.*, false FROM f JOIN s ON NOT f.few CROSS JOIN LATERAL (
        SELECT v.id, v.queue_id, v.kind, v.occurred_at, cardinality(v.seqs), CASE WHEN v.kind = 2 THEN v.waited END,
            CASE WHEN v.kind = 2 THEN v.deliveries END
        FROM leasequeue_leaseevent v
        WHERE v.occurred_at >= s.low AND v.occurred_at < s.low + %(bucket)s::int * interval '1 s'
        LIMIT %(size)s::int) v
), c AS MATERIALIZED (
    SELECT bucket, CASE WHEN bool_and(whole) OR count(*) < %(size)s::int THEN 1
        ELSE GREATEST(1, %(bucket)s::int / GREATEST(extract(epoch FROM max(occurred_at) - low)::float8, 0.001)) END AS factor
    FROM v GROUP BY bucket, low
), m AS MATERIALIZED (
    SELECT sum(n) / 50000 + 1 AS step FROM v WHERE kind = 2
), a AS MATERIALIZED (
    SELECT v.queue_id, v.bucket, v.kind, c.factor, c.factor * v.n AS n, NULL::float8 AS wait FROM v JOIN c ON c.bucket = v.bucket
    UNION ALL
    SELECT v.queue_id, v.bucket, NULL, 1, 0, v.waited[i] / 1000.0
    FROM m, v CROSS JOIN LATERAL generate_series(1 + v.id %% m.step, v.n, m.step) AS i
    WHERE v.kind = 2 AND COALESCE(v.deliveries[i], 1) = 1 AND v.waited[i] IS NOT NULL
)
SELECT queue_id, bucket, max(factor), sum(n) FILTER (WHERE kind = 1), sum(n) FILTER (WHERE kind = 2),
    sum(n) FILTER (WHERE kind = 5), sum(n) FILTER (WHERE kind = 6), sum(n) FILTER (WHERE kind IN (4, 7)),
    sum(n) FILTER (WHERE kind = 8), percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY wait)
FROM a WHERE %(queue)s::bigint IS NULL OR queue_id = %(queue)s::bigint
GROUP BY GROUPING SETS ((queue_id, bucket), (queue_id), (bucket), ())
ORDER BY queue_id, bucket
