-- Purpose: the database's time, or the held one, and the average number of jobs in a row of the lease log, by a few
--   rows behind each of eight moments of the seconds before.
-- Parameters: seconds, now.
-- Index: leasequeue_event_occurred (BRIN) of each partition, read for 160 rows.
-- Pages: 1200
-- Returns: the time; the average, null where there is no row.
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
WITH clock AS (SELECT {now()} AS now)
SELECT c.now, (SELECT avg(x.n)::float8 FROM generate_series(0, 7) AS g CROSS JOIN LATERAL (
    SELECT cardinality(v.seqs) AS n FROM leasequeue_leaseevent v
    WHERE v.occurred_at >= c.now - make_interval(secs => %(seconds)s::float8 * (1 - g / 8.0))
    LIMIT 20) x)
FROM clock c
