-- Purpose: count events of jobs since the full hour (UTC), and how long jobs waited and ran: the events that an earlier
--   snapshot of the log has not counted. Exact, also when transactions end in another order than they began.
--   A picture of another epoch, or of a server that was further, is none; rows of transactions that are yet to come are
--   left out until an epoch begins.
-- Parameters: since, snapshot (the hour and the picture of the last count; null: none), bounds (int[]: the upper ends
--   of the histograms, ms, plus one), now.
-- Index: leasequeue_event_occurred and leasequeue_event_txid (BRIN) of each partition.
-- Pages: 20 + 0.6 a row
-- Returns: the hour and the picture on every row, whether the last count goes on (else it begins anew); then queue id,
--   what (an event, 'wait', 'run', or null: nothing happened), place in the histogram, how often, milliseconds
--   together.
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
WITH picture AS MATERIALIZED (
    SELECT date_trunc('hour', {now()}, 'UTC') AS since, pg_current_snapshot() AS snapshot,
        leasequeue_epoch() << {TXID_BITS} AS epoch, split_part(%(snapshot)s::text, ' ', 2) AS last
), span AS MATERIALIZED (
    SELECT picture.*,
        CASE WHEN since = %(since)s::timestamptz AND epoch::text = split_part(%(snapshot)s::text, ' ', 1)
            AND pg_snapshot_xmax(last::pg_snapshot) <= pg_snapshot_xmax(snapshot) THEN last::pg_snapshot END AS before,
        epoch + GREATEST(pg_snapshot_xmax(snapshot)::text::bigint,
            pg_current_xact_id_if_assigned()::text::bigint + 1) AS newest
    FROM picture
), events AS MATERIALIZED (
    SELECT v.txid, v.queue_id, v.claim, v.kind, v.seqs, v.waited, v.ran, v.detail ? 'error_type' AS error,
        v.detail ? 'suspended' AS suspended
    FROM leasequeue_leaseevent v
    WHERE v.occurred_at >= (SELECT since FROM span) AND v.kind NOT IN ({event.EXTENDED}, {event.LINKED})
        AND v.txid >= COALESCE((SELECT epoch + pg_snapshot_xmin(before)::text::bigint FROM span), 0)
        AND v.txid < (SELECT newest FROM span)
        AND COALESCE(
            NOT pg_visible_in_snapshot((v.txid & ((1::bigint << {TXID_BITS}) - 1))::text::xid8,
                (SELECT before FROM span)), true)
), failed AS MATERIALIZED (
    -- A try that failed and was the last one is released and dead at once: it is not tried again.
    SELECT DISTINCT txid, claim FROM events WHERE kind = {event.RELEASED} AND error
), counted AS (
    SELECT events.queue_id, w.word, NULL::int AS place, w.sign * cardinality(events.seqs) AS n, 0::bigint AS ms
    FROM events LEFT JOIN failed ON events.kind = {event.DEAD_LETTERED} AND failed.txid = events.txid
        AND failed.claim = events.claim
    CROSS JOIN LATERAL (
        SELECT CASE events.kind WHEN {event.ENQUEUED} THEN 'enqueued' WHEN {event.CLAIMED} THEN 'claimed'
            WHEN {event.RELEASED} THEN CASE WHEN events.error THEN 'retried'
            WHEN events.suspended THEN 'suspended' ELSE 'returned' END
            WHEN {event.ACKED} THEN 'completed' WHEN {event.FAILED} THEN 'failed' WHEN {event.EXPIRED} THEN 'expired'
                WHEN {event.DEAD_LETTERED} THEN 'dead_lettered' WHEN {event.REDRIVEN} THEN 'redriven'
            WHEN {event.CANCELLED} THEN 'cancelled' ELSE 'other' END AS word, 1 AS sign
        UNION ALL SELECT 'retried', -1 WHERE failed.claim IS NOT NULL) w
    UNION ALL
    SELECT events.queue_id, 'wait', width_bucket(x, %(bounds)s::int[]), 1, x FROM events
    CROSS JOIN LATERAL unnest(events.waited) AS x
    WHERE events.kind = {event.CLAIMED} AND x IS NOT NULL
    UNION ALL
    SELECT events.queue_id, 'run', width_bucket(x, %(bounds)s::int[]), 1, x FROM events
    CROSS JOIN LATERAL unnest(events.ran) AS x
    WHERE events.kind IN ({event.RELEASED}, {event.ACKED}, {event.FAILED}) AND x IS NOT NULL
)
SELECT span.since, span.epoch || ' ' || span.snapshot, span.before IS NOT NULL, s.queue_id, s.word, s.place, s.n, s.ms
FROM span LEFT JOIN (
    SELECT queue_id, word, place, sum(n)::bigint AS n, sum(ms)::bigint AS ms FROM counted
    GROUP BY queue_id, word, place) s ON true
