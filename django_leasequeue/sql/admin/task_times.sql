-- Purpose: the runs of one task over time: how many completed and failed in each bucket, and how long they ran.
-- Parameters: task, since (event_reach.sql says how far back is not too much), bucket (seconds), now.
-- Index: leasequeue_event_occurred (BRIN) of each partition.
-- Pages: 60 + 0.4 a row
-- Returns: bucket (0 = oldest), completed, failed runs, p50, p95 and p99 of the runs (ms, an array; null: not known) of
--   up to 50 jobs of each row of the log.
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
WITH clock AS MATERIALIZED (SELECT {now()} AS now, %(bucket)s::int * interval '1 s' AS step), runs AS MATERIALIZED (
    SELECT date_bin((SELECT step FROM clock), v.occurred_at, %(since)s::timestamptz) AS at, v.kind,
        cardinality(v.seqs) AS n, v.ran[1:50] AS ran
    FROM leasequeue_leaseevent v
    WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM clock)
        AND v.name = %(task)s::text AND (v.kind IN ({event.ACKED}, {event.FAILED}, {event.EXPIRED})
            OR v.kind = {event.RELEASED} AND v.detail ? 'error_type')
    OFFSET 0
), times AS MATERIALIZED (
    SELECT runs.at, percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY t.ms) AS ran
    FROM runs CROSS JOIN LATERAL unnest(runs.ran) AS t(ms) WHERE t.ms IS NOT NULL GROUP BY runs.at
), counts AS MATERIALIZED (
    SELECT runs.at, COALESCE(sum(runs.n) FILTER (WHERE runs.kind = {event.ACKED}), 0)::bigint AS completed,
        COALESCE(sum(runs.n) FILTER (WHERE runs.kind <> {event.ACKED}), 0)::bigint AS failed
    FROM runs GROUP BY runs.at
)
SELECT round(extract(epoch FROM counts.at - %(since)s::timestamptz) / %(bucket)s::int)::int AS bucket,
    counts.completed, counts.failed, times.ran
FROM counts LEFT JOIN times ON times.at = counts.at ORDER BY counts.at
