-- Purpose: what happened to the jobs of queues in a time, by bucket of time, counted. Waits are those of every claim, of
--   many claims those of about ``sampled`` that are evenly chosen.
-- Parameters: queue (id; null: each), since (event_reach.sql says how far back is not too much), bucket (seconds), sampled, now.
-- Index: leasequeue_event_occurred (BRIN) of each partition, read twice.
-- Pages: 60 + 0.4 a row
-- Host: as upkeep/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: queue id (null: all together), bucket (0 = oldest; null: the whole time); jobs that were enqueued, claimed, completed,
--   whose run failed (the worker said so, or its lease expired), of those the ones that run again, jobs that failed for good (of
--   whatever cause); waits p50, p95 and p99 (ms from when a job was ready to its claim; null: not known, and where queue and bucket
--   are both given), of each how many claims one was looked at.
WITH t AS MATERIALIZED (SELECT {now()} AS now, %(bucket)s::int * interval '1 s' AS step), c AS MATERIALIZED (
    SELECT v.queue_id, v.at, v.kind, v.wrong, v.held, sum(v.n) AS n FROM (
        SELECT v.queue_id, date_bin((SELECT step FROM t), v.occurred_at, %(since)s::timestamptz) AS at, v.kind,
            v.detail ? 'error_type' AS wrong, v.claim IS NOT NULL AS held, cardinality(v.seqs) AS n
        FROM leasequeue_leaseevent v
        WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM t)
            AND (%(queue)s::bigint IS NULL OR v.queue_id = %(queue)s::bigint) OFFSET 0) v
    GROUP BY 1, 2, 3, 4, 5
), f AS (
    SELECT queue_id, at, sum(n) FILTER (WHERE kind = 1) AS enqueued, sum(n) FILTER (WHERE kind = 2) AS claimed,
        sum(n) FILTER (WHERE kind = 5) AS completed, sum(n) FILTER (WHERE kind IN (6, 7) OR kind = 4 AND wrong) AS failed,
        GREATEST(COALESCE(sum(n) FILTER (WHERE kind = 7 OR kind = 4 AND wrong), 0)
            - COALESCE(sum(n) FILTER (WHERE kind = 8 AND held), 0), 0) AS retried,
        sum(n) FILTER (WHERE kind IN (6, 8)) AS ended
    FROM c GROUP BY GROUPING SETS ((queue_id, at), (queue_id), (at), ())
), s AS MATERIALIZED (
    SELECT ((COALESCE(sum(n) FILTER (WHERE kind = 2), 0)::bigint - 1) / %(sampled)s::int + 1)::int AS step FROM c
), w AS (
    SELECT x.queue_id, x.at, percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY x.ms) AS ms FROM (
        SELECT v.queue_id, date_bin((SELECT step FROM t), v.occurred_at, %(since)s::timestamptz) AS at, a.times[i.n] AS ms
        FROM s CROSS JOIN leasequeue_leaseevent v
        -- A copy: each element of what is stored compressed would unpack it anew.
        CROSS JOIN LATERAL (SELECT array_cat(v.waited, '{}') AS times OFFSET 0) a
        CROSS JOIN LATERAL generate_series(1 + (hashint8(v.id) & 2147483647) %% s.step, cardinality(a.times), s.step) AS i(n)
        WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM t) AND v.kind = 2
            AND (%(queue)s::bigint IS NULL OR v.queue_id = %(queue)s::bigint)) x
    WHERE x.ms IS NOT NULL GROUP BY GROUPING SETS ((x.queue_id), (x.at), ())
)
SELECT f.queue_id, (date_part('epoch', f.at - %(since)s::timestamptz) / %(bucket)s::int)::int, COALESCE(f.enqueued, 0)::bigint,
    COALESCE(f.claimed, 0)::bigint, COALESCE(f.completed, 0)::bigint, COALESCE(f.failed, 0)::bigint, f.retried::bigint,
    COALESCE(f.ended, 0)::bigint, w.ms, s.step
FROM s, f LEFT JOIN w ON w.queue_id IS NOT DISTINCT FROM f.queue_id AND w.at IS NOT DISTINCT FROM f.at
ORDER BY f.queue_id, f.at
