-- Purpose: how often what happened to jobs since the full hour (UTC), and how long they waited and ran: what an earlier picture of
--   the log has not counted already. Exact, also when transactions end in another order than they began.
-- Parameters: since, snapshot (the hour and the picture of the last count; null: none), bounds (int[]: the upper ends of the
--   histograms, ms, plus one), now.
-- Index: leasequeue_event_occurred and leasequeue_event_txid (BRIN) of each partition. (Run it under upkeep/plans: BRIN needs bitmaps.)
-- Pages: 20 + 0.6 a row
-- Host: as upkeep/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: the hour and the picture on every row, whether the last count goes on (else it begins anew); then queue id, what
--   (an event, 'wait', 'run', or null: nothing happened), place in the histogram, how often, milliseconds together.
WITH t AS MATERIALIZED (
    SELECT date_trunc('hour', {now()}, 'UTC') AS since, pg_current_snapshot() AS snapshot
), b AS MATERIALIZED (
    SELECT t.since, t.snapshot, CASE WHEN t.since = %(since)s::timestamptz THEN %(snapshot)s::text::pg_snapshot END AS before
    FROM t
), v AS MATERIALIZED (
    SELECT v.txid, v.queue_id, v.claim, v.kind, v.seqs, v.waited, v.ran, v.detail ? 'error_type' AS error, v.detail ? 'suspended' AS suspended
    FROM leasequeue_leaseevent v
    WHERE v.occurred_at >= (SELECT since FROM b) AND v.kind NOT IN (3, 11)
        AND v.txid >= COALESCE((SELECT pg_snapshot_xmin(before)::text::bigint FROM b), 0)
        AND COALESCE(NOT pg_visible_in_snapshot(v.txid::text::xid8, (SELECT before FROM b)), true)
), d AS MATERIALIZED (
    -- A try that failed and was the last one is released and dead at once: it is not tried again.
    SELECT DISTINCT txid, claim FROM v WHERE kind = 4 AND error
), c AS (
    SELECT v.queue_id, w.word, NULL::int AS place, w.sign * cardinality(v.seqs) AS n, 0::bigint AS ms
    FROM v LEFT JOIN d ON v.kind = 8 AND d.txid = v.txid AND d.claim = v.claim
    CROSS JOIN LATERAL (
        SELECT CASE v.kind WHEN 1 THEN 'enqueued' WHEN 2 THEN 'claimed' WHEN 4 THEN CASE WHEN v.error THEN 'retried'
            WHEN v.suspended THEN 'suspended' ELSE 'returned' END
            WHEN 5 THEN 'completed' WHEN 6 THEN 'failed' WHEN 7 THEN 'expired' WHEN 8 THEN 'dead_lettered' WHEN 9 THEN 'redriven'
            WHEN 10 THEN 'cancelled' ELSE 'other' END AS word, 1 AS sign
        UNION ALL SELECT 'retried', -1 WHERE d.claim IS NOT NULL) w
    UNION ALL
    SELECT v.queue_id, 'wait', width_bucket(x, %(bounds)s::int[]), 1, x FROM v CROSS JOIN LATERAL unnest(v.waited) AS x
    WHERE v.kind = 2 AND x IS NOT NULL
    UNION ALL
    SELECT v.queue_id, 'run', width_bucket(x, %(bounds)s::int[]), 1, x FROM v CROSS JOIN LATERAL unnest(v.ran) AS x
    WHERE v.kind IN (4, 5, 6) AND x IS NOT NULL
)
SELECT b.since, b.snapshot::text, b.before IS NOT NULL, s.queue_id, s.word, s.place, s.n, s.ms
FROM b LEFT JOIN (
    SELECT queue_id, word, place, sum(n)::bigint AS n, sum(ms)::bigint AS ms FROM c GROUP BY queue_id, word, place) s ON true
