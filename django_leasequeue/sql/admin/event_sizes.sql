-- Purpose: the average number of jobs in a row of the lease log, by a few rows behind each of eight moments of a
--   time.
-- Parameters: since, now.
-- Index: leasequeue_event_occurred (BRIN) of each partition, read for 160 rows.
-- Pages: 1200
-- Settings: as upkeep/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: the average; null where there is no row.
{keeps_host_settings()}
SELECT avg(x.n)::float8 FROM generate_series(0, 7) AS g CROSS JOIN LATERAL (
    SELECT cardinality(v.seqs) AS n FROM leasequeue_leaseevent v
    WHERE v.occurred_at >= %(since)s::timestamptz + (%(now)s::timestamptz - %(since)s::timestamptz) * (g / 8.0)::float8
    LIMIT 20) x
