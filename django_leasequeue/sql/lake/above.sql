-- Purpose: count rows of the lease log above every horizon: this server has not begun their transactions.
--   (What is materialized is planned as if all of it were wanted: not by reading the log in hope of an early hit.)
-- Index: leasequeue_event_txid (BRIN).
-- Pages: whole tables: what lies above the horizon, up to 100,000 rows
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
WITH beyond AS MATERIALIZED (
    SELECT FROM leasequeue_leaseevent e WHERE e.txid >= (leasequeue_epoch() << {TXID_BITS}) + GREATEST(
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_xact_id_if_assigned()::text::bigint + 1)
)
SELECT count(*) FROM (SELECT FROM beyond LIMIT 100000) AS b
