-- Purpose: count the events of queues in a period, by time bucket. Waits are those of every claim,
--   of many claims those of about ``sampled`` that are evenly chosen.
-- Parameters: queue (id; null: each), since (event_reach.sql says how far back is not too much), bucket (seconds),
--   sampled, now.
-- Index: leasequeue_event_occurred (BRIN) of each partition, read twice.
-- Pages: 60 + 0.4 a row
-- Returns: queue id (null: all together), bucket (0 = oldest; null: the whole time); jobs that were enqueued, claimed,
--   completed, whose run failed (the worker said so, or its lease expired), of those the ones that run again, jobs that
--   failed for good (of whatever cause); waits p50, p95 and p99 (ms from when a job was ready to its claim; null: not
--   known, and where queue and bucket are both given), of each how many claims one was looked at.
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
WITH clock AS MATERIALIZED (SELECT {now()} AS now, %(bucket)s::int * interval '1 s' AS step), counted AS MATERIALIZED (
    SELECT v.queue_id, v.at, v.kind, v.wrong, v.held, sum(v.n) AS n FROM (
        SELECT v.queue_id, date_bin((SELECT step FROM clock), v.occurred_at, %(since)s::timestamptz) AS at, v.kind,
            v.detail ? 'error_type' AS wrong, v.claim IS NOT NULL AS held, cardinality(v.seqs) AS n
        FROM leasequeue_leaseevent v
        WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM clock)
            AND (%(queue)s::bigint IS NULL OR v.queue_id = %(queue)s::bigint) OFFSET 0) v
    GROUP BY 1, 2, 3, 4, 5
), figures AS (
    SELECT queue_id, at, sum(n) FILTER (WHERE kind = {event.ENQUEUED}) AS enqueued,
        sum(n) FILTER (WHERE kind = {event.CLAIMED}) AS claimed,
        sum(n) FILTER (WHERE kind = {event.ACKED}) AS completed, sum(n) FILTER (WHERE kind IN ({event.FAILED},
            {event.EXPIRED}) OR kind = {event.RELEASED} AND wrong) AS failed,
        GREATEST(COALESCE(sum(n) FILTER (WHERE kind = {event.EXPIRED} OR kind = {event.RELEASED} AND wrong), 0)
            - COALESCE(sum(n) FILTER (WHERE kind = {event.DEAD_LETTERED} AND held), 0), 0) AS retried,
        sum(n) FILTER (WHERE kind IN ({event.FAILED}, {event.DEAD_LETTERED})) AS ended
    FROM counted GROUP BY GROUPING SETS ((queue_id, at), (queue_id), (at), ())
), sample AS MATERIALIZED (
    SELECT ((COALESCE(sum(n) FILTER (WHERE kind = {event.CLAIMED}), 0)::bigint - 1) / %(sampled)s::int + 1)::int AS step
    FROM counted
), waits AS (
    SELECT waited.queue_id, waited.at, percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY waited.ms) AS ms
    FROM (
        SELECT v.queue_id, date_bin((SELECT step FROM clock), v.occurred_at, %(since)s::timestamptz) AS at,
            a.times[i.n] AS ms
        FROM sample CROSS JOIN leasequeue_leaseevent v
        -- A copy: each element of what is stored compressed would unpack it anew.
        CROSS JOIN LATERAL (SELECT array_cat(v.waited, '{}') AS times OFFSET 0) a
        CROSS JOIN LATERAL generate_series(1 + (hashint8(v.id) & 2147483647) %% sample.step, cardinality(a.times),
            sample.step) AS i(n)
        WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= (SELECT now FROM clock)
            AND v.kind = {event.CLAIMED}
            AND (%(queue)s::bigint IS NULL OR v.queue_id = %(queue)s::bigint)) waited
    WHERE waited.ms IS NOT NULL GROUP BY GROUPING SETS ((waited.queue_id), (waited.at), ())
)
SELECT figures.queue_id, (date_part('epoch', figures.at - %(since)s::timestamptz) / %(bucket)s::int)::int,
    COALESCE(figures.enqueued, 0)::bigint, COALESCE(figures.claimed, 0)::bigint, COALESCE(figures.completed, 0)::bigint,
    COALESCE(figures.failed, 0)::bigint, figures.retried::bigint, COALESCE(figures.ended, 0)::bigint, waits.ms,
    sample.step
FROM sample, figures LEFT JOIN waits ON waits.queue_id IS NOT DISTINCT FROM figures.queue_id
    AND waits.at IS NOT DISTINCT FROM figures.at
ORDER BY figures.queue_id, figures.at
