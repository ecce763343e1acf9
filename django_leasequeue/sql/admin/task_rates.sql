-- Purpose: the runs of each task in a time, counted: how many, how they ended, how long jobs waited and ran, the
--   slowest, the newest that failed. Waits and runs are those of every job; of a task with many jobs of some that are
--   evenly chosen: of all tasks together of about ``sampled``, of each of a fiftieth of that at least. The slowest is
--   that of all.
-- Parameters: since (event_reach.sql says how far back is not too much), size (tasks), sampled, now.
-- Index: leasequeue_event_occurred (BRIN) of each partition: the time is read twice.
-- Pages: 90 + 0.8 a row
-- Returns: task (null: jobs without a name), runs that ended, completed, failed, of those the ones that run again, jobs
--   that failed for good, waits and runs (ms; arrays of p50, p95, p99; null: not known), of how many of its jobs one
--   was looked at for them; ms and number of the slowest job; time and number of the newest that failed. The task with
--   most runs first.
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
WITH clock AS MATERIALIZED (SELECT {now()} AS now), figures AS MATERIALIZED (
    SELECT runs.*, ((runs.jobs - 1) / GREATEST(%(sampled)s::int / LEAST(count(*) OVER (), %(size)s::int),
        %(sampled)s::int / 50, 1) + 1)::int
        AS step,
        (row_number() OVER (ORDER BY runs.completed + runs.failed DESC, runs.name))::int AS place FROM (
        SELECT COALESCE(name, '') AS name, COALESCE(sum(n) FILTER (WHERE kind = {event.ACKED}), 0)::bigint AS completed,
            COALESCE(sum(n) FILTER (WHERE wrong), 0)::bigint AS failed,
            GREATEST(COALESCE(sum(n) FILTER (WHERE wrong AND kind <> {event.FAILED}), 0)
                - COALESCE(sum(n) FILTER (WHERE kind = {event.DEAD_LETTERED} AND held), 0), 0)::bigint AS retried,
            COALESCE(sum(n) FILTER (WHERE kind IN ({event.FAILED}, {event.DEAD_LETTERED})), 0)::bigint AS ended,
            GREATEST(sum(n) FILTER (WHERE kind = {event.CLAIMED}), sum(n) FILTER (WHERE kind <> {event.CLAIMED}),
                0)::bigint AS jobs,
            max(slowest) AS slowest, max(newest) AS newest
        FROM (
            SELECT v.name, v.kind, v.held, v.wrong, sum(v.n) AS n,
                max(ARRAY[v.longest, v.seqs[array_position(v.ran,
                    v.longest)]]) FILTER (WHERE v.longest IS NOT NULL) AS slowest,
                max(ARRAY[(date_part('epoch', v.occurred_at) * 1000000)::bigint,
                    v.high]) FILTER (WHERE v.wrong) AS newest
            FROM (
                SELECT v.name, v.kind, v.claim IS NOT NULL AS held, cardinality(v.seqs) AS n, v.high, v.seqs, v.ran,
                    v.occurred_at,
                    v.kind IN ({event.FAILED}, {event.EXPIRED}) OR v.kind = {event.RELEASED}
                        AND v.detail ? 'error_type' AS wrong,
                    CASE WHEN cardinality(v.ran) > 1 THEN (SELECT max(r) FROM unnest(v.ran) AS r)
                        ELSE v.ran[1] END AS longest
                FROM leasequeue_leaseevent v
                WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM clock)
                    AND v.kind IN ({event.CLAIMED}, {event.RELEASED}, {event.ACKED}, {event.FAILED}, {event.EXPIRED},
                        {event.DEAD_LETTERED}) OFFSET 0) v
            GROUP BY 1, 2, 3, 4) v
        GROUP BY 1) runs
    ORDER BY place LIMIT %(size)s::int
), sampling AS MATERIALIZED (
    -- Looked up instead of joined: a join sorts all rows by name before it leaves most of them out.
    SELECT jsonb_object_agg(name, place) AS places, array_agg(step ORDER BY place) AS steps FROM figures
), spans AS MATERIALIZED (
    SELECT runs.place,
        percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY runs.ms) FILTER (WHERE runs.waits) AS waits,
        percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY runs.ms) FILTER (WHERE NOT runs.waits) AS runs
    FROM (
        SELECT v.place, v.waits, a.times[i.n] AS ms
        FROM (
            SELECT v.place, v.waits, v.times, sampling.steps[v.place] AS step,
                1 + v.hash %% sampling.steps[v.place] AS first FROM sampling, (
                SELECT v.kind = {event.CLAIMED} AS waits, CASE WHEN v.kind = {event.CLAIMED} THEN v.waited
                    ELSE v.ran END AS times,
                    hashint8(v.id) & 2147483647 AS hash, ((SELECT places FROM sampling) -> COALESCE(v.name,
                        ''))::int AS place
                FROM leasequeue_leaseevent v
                WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM clock)
                    AND v.kind IN ({event.CLAIMED}, {event.RELEASED}, {event.ACKED}, {event.FAILED})
                OFFSET 0) v
            WHERE 1 + v.hash %% sampling.steps[v.place] <= cardinality(v.times) OFFSET 0) v
        -- A copy: each element of what is stored compressed would unpack it anew.
        CROSS JOIN LATERAL (SELECT array_cat(v.times, '{}') AS times OFFSET 0) a
        CROSS JOIN LATERAL generate_series(v.first, cardinality(a.times), v.step) AS i(n)
        -- Apart: else each row that is sorted carries its array along.
        OFFSET 0) runs
    WHERE runs.ms IS NOT NULL GROUP BY runs.place
)
SELECT NULLIF(figures.name, ''), figures.completed + figures.failed, figures.completed, figures.failed, figures.retried,
    figures.ended, spans.waits, spans.runs, figures.step, figures.slowest[1], figures.slowest[2],
    'epoch'::timestamptz + figures.newest[1] * interval '1 us', figures.newest[2]
FROM figures LEFT JOIN spans ON spans.place = figures.place
ORDER BY figures.place
