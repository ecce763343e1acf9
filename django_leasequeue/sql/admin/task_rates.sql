-- Purpose: the runs of each task in a time, counted: how many, how they ended, how long jobs waited and ran, the slowest, the
--   newest that failed. Waits and runs are those of every job; of a task with many jobs of some that are evenly chosen: of all tasks
--   together of about ``sampled``, of each of a fiftieth of that at least. The slowest is that of all.
-- Parameters: since (event_reach.sql says how far back is not too much), size (tasks), sampled, now.
-- Index: leasequeue_event_occurred (BRIN) of each partition: the time is read twice.
-- Pages: 90 + 0.8 a row
-- Host: as upkeep/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: task (null: jobs without a name), runs that ended, completed, failed, of those the ones that run again, jobs that failed
--   for good, waits and runs (ms; arrays of p50, p95, p99; null: not known), of how many of its jobs one was looked at for them; ms
--   and number of the slowest job; time and number of the newest that failed. The task with most runs first.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), f AS MATERIALIZED (
    SELECT x.*, ((x.jobs - 1) / GREATEST(%(sampled)s::int / LEAST(count(*) OVER (), %(size)s::int), %(sampled)s::int / 50, 1) + 1)::int
        AS step FROM (
        SELECT name, COALESCE(sum(n) FILTER (WHERE kind = 5), 0)::bigint AS completed,
            COALESCE(sum(n) FILTER (WHERE wrong), 0)::bigint AS failed,
            GREATEST(COALESCE(sum(n) FILTER (WHERE wrong AND kind <> 6), 0)
                - COALESCE(sum(n) FILTER (WHERE kind = 8 AND held), 0), 0)::bigint AS retried,
            COALESCE(sum(n) FILTER (WHERE kind IN (6, 8)), 0)::bigint AS ended,
            GREATEST(sum(n) FILTER (WHERE kind = 2), sum(n) FILTER (WHERE kind <> 2), 0)::bigint AS jobs,
            max(ARRAY[ran, slowest]) AS slowest, max(ARRAY[at, high]) FILTER (WHERE wrong) AS newest
        FROM (
            SELECT COALESCE(v.name, '') AS name, v.kind, v.claim IS NOT NULL AS held, cardinality(v.seqs) AS n, v.high,
                v.kind IN (6, 7) OR v.kind = 4 AND v.detail ? 'error_type' AS wrong, COALESCE(s.ran, -1) AS ran,
                CASE WHEN s.ran IS NOT NULL THEN v.seqs[array_position(v.ran, s.ran)] END AS slowest,
                (date_part('epoch', v.occurred_at) * 1000000)::bigint AS at
            FROM leasequeue_leaseevent v CROSS JOIN LATERAL (SELECT max(r) AS ran FROM unnest(v.ran) AS r) s
            WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM t)
                AND v.kind IN (2, 4, 5, 6, 7, 8) OFFSET 0) v
        GROUP BY name) x
    ORDER BY x.completed + x.failed DESC, x.name LIMIT %(size)s::int
), w AS MATERIALIZED (
    SELECT x.name, percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY x.ms) FILTER (WHERE x.waits) AS waits,
        percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY x.ms) FILTER (WHERE NOT x.waits) AS runs FROM (
        SELECT f.name, v.kind = 2 AS waits, a.times[i.n] AS ms
        FROM leasequeue_leaseevent v JOIN f ON f.name = COALESCE(v.name, '')
        -- A copy: each element of what is stored compressed would unpack it anew.
        CROSS JOIN LATERAL (SELECT array_cat(CASE WHEN v.kind = 2 THEN v.waited ELSE v.ran END, '{}') AS times OFFSET 0) a
        CROSS JOIN LATERAL generate_series(1 + (hashint8(v.id) & 2147483647) %% f.step, cardinality(a.times), f.step) AS i(n)
        WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM t) AND v.kind IN (2, 4, 5, 6)) x
    WHERE x.ms IS NOT NULL GROUP BY x.name
)
SELECT NULLIF(f.name, ''), f.completed + f.failed, f.completed, f.failed, f.retried, f.ended, w.waits, w.runs, f.step,
    NULLIF(f.slowest[1], -1), f.slowest[2], 'epoch'::timestamptz + f.newest[1] * interval '1 us', f.newest[2]
FROM f LEFT JOIN w ON w.name = f.name
ORDER BY f.completed + f.failed DESC, f.name
