-- Purpose: the runs of each task in a time, counted: how many, how they ended, how long jobs waited and ran, the slowest, the
--   newest that failed. Waits and runs are those of every job, of many those of about 100,000 that are evenly chosen; the
--   slowest is that of all.
-- Parameters: since (event_reach.sql says how far back is not too much), size (tasks), now.
-- Index: leasequeue_event_occurred (BRIN) of each partition: the time is read twice, and two moments of each task.
-- Pages: 90 + 0.8 a row
-- Host: as upkeep/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: task (null: jobs without a name), runs that ended, completed, failed, of those the ones that run again, jobs that failed
--   for good, waits and runs (ms; arrays of p50, p95, p99; null: not known), of each how many jobs one was looked at; ms and number
--   of the slowest job; time and number of the newest that failed. The task with most runs first.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), c AS MATERIALIZED (
    SELECT v.name, v.kind, v.detail ? 'error_type' AS wrong, v.claim IS NOT NULL AS held, sum(cardinality(v.seqs)) AS n,
        max(v.occurred_at) AS at, max(ARRAY[COALESCE((SELECT max(r) FROM unnest(v.ran) AS r), -1),
            (date_part('epoch', v.occurred_at) * 1000000)::bigint]) AS slowest
    FROM leasequeue_leaseevent v
    WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM t) AND v.kind IN (2, 4, 5, 6, 7, 8)
    GROUP BY 1, 2, 3, 4
), f AS MATERIALIZED (
    SELECT x.*, 'epoch'::timestamptz + x.slowest[2] * interval '1 us' AS slowest_at FROM (
        SELECT name, COALESCE(sum(n) FILTER (WHERE kind = 5), 0) AS completed,
            COALESCE(sum(n) FILTER (WHERE kind IN (6, 7) OR kind = 4 AND wrong), 0) AS failed,
            GREATEST(COALESCE(sum(n) FILTER (WHERE kind = 7 OR kind = 4 AND wrong), 0)
                - COALESCE(sum(n) FILTER (WHERE kind = 8 AND held), 0), 0) AS retried,
            COALESCE(sum(n) FILTER (WHERE kind IN (6, 8)), 0) AS ended,
            max(at) FILTER (WHERE kind IN (6, 7) OR kind = 4 AND wrong) AS newest_at, max(slowest) AS slowest
        FROM c GROUP BY name) x
    ORDER BY x.completed + x.failed DESC, x.name LIMIT %(size)s::int
), s AS MATERIALIZED (
    SELECT x.n / 1000000 + 1 AS of_rows, x.n / (x.n / 1000000 + 1) / 100000 + 1 AS of_jobs
    FROM (SELECT COALESCE(sum(n) FILTER (WHERE kind = 2), 0)::bigint AS n FROM c) x
), w AS MATERIALIZED (
    SELECT x.name, percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY x.ms) FILTER (WHERE x.waits) AS waits,
        percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY x.ms) FILTER (WHERE NOT x.waits) AS runs FROM (
        SELECT v.name, v.kind = 2 AS waits, u.ms FROM s, leasequeue_leaseevent v
        CROSS JOIN LATERAL unnest(CASE WHEN v.kind = 2 THEN v.waited ELSE v.ran END) WITH ORDINALITY AS u(ms, i)
        WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM t) AND v.kind IN (2, 4, 5, 6)
            AND u.ms IS NOT NULL AND hashint8(v.id) %% s.of_rows = 0 AND (v.id + u.i) %% s.of_jobs = 0) x
    GROUP BY x.name
)
SELECT f.name, (f.completed + f.failed)::bigint, f.completed::bigint, f.failed::bigint, f.retried::bigint, f.ended::bigint, w.waits,
    w.runs, s.of_rows * s.of_jobs, NULLIF(f.slowest[1], -1)::bigint, l.seq, f.newest_at, n.seq
FROM s CROSS JOIN f LEFT JOIN w ON w.name IS NOT DISTINCT FROM f.name
LEFT JOIN LATERAL (
    SELECT v.seqs[array_position(v.ran, f.slowest[1]::int)] AS seq FROM leasequeue_leaseevent v
    WHERE v.occurred_at BETWEEN f.slowest_at - interval '5 us' AND f.slowest_at + interval '5 us'
        AND v.name IS NOT DISTINCT FROM f.name AND v.kind IN (4, 5, 6) AND f.slowest[1]::int = ANY (v.ran) LIMIT 1) l ON true
LEFT JOIN LATERAL (
    SELECT v.high AS seq FROM leasequeue_leaseevent v WHERE v.occurred_at = f.newest_at AND v.name IS NOT DISTINCT FROM f.name
        AND (v.kind IN (6, 7) OR v.kind = 4 AND v.detail ? 'error_type') LIMIT 1) n ON true
ORDER BY f.completed + f.failed DESC, f.name
