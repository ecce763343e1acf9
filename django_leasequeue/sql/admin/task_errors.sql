-- Purpose: the errors of the runs of one task in a time.
-- Parameters: task, since (event_reach.sql says how far back is not too much), size, now.
-- Index: leasequeue_event_occurred (BRIN) of each partition.
-- Pages: 60 + 0.4 a row
-- Returns: error types (null: the lease expired, or none is known), the most frequent first.
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
SELECT v.detail ->> 'error_type' AS error_type, v.detail ->> 'fingerprint' AS fingerprint,
    sum(cardinality(v.seqs))::bigint AS runs, max(v.occurred_at) AS newest_at, max(v.high) AS newest_seq
FROM leasequeue_leaseevent v
WHERE v.occurred_at >= %(since)s::timestamptz AND v.occurred_at <= {now()} AND v.name = %(task)s::text
    AND (v.kind IN ({event.FAILED}, {event.EXPIRED}) OR v.kind = {event.RELEASED} AND v.detail ? 'error_type')
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT %(size)s::int
