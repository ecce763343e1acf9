-- Purpose: whether a count of the lease log since a time reads at most so many rows.
-- Parameters: since, size (rows: their numbers tell how many there are).
-- Index: leasequeue_event_occurred (BRIN) of each partition, read for 100 rows: the first of them is not always the
--   oldest, as a row may lie where one was that was rolled back; catalogs.
-- Pages: 150
-- Returns: whether there are at most so many rows; when the oldest row of the log was written (null: nothing was ever
--   dropped).
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
SELECT COALESCE((SELECT min(o.id) FROM (
        SELECT v.id FROM leasequeue_leaseevent v WHERE v.occurred_at >= %(since)s::timestamptz LIMIT 100) o)
        > pg_sequence_last_value(pg_get_serial_sequence('leasequeue_leaseevent', 'id')::regclass) - %(size)s::bigint,
            true),
    CASE WHEN NOT EXISTS (
        SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'leasequeue_leaseevent'::regclass
            AND pg_get_expr(c.relpartbound, c.oid) ~ 'FROM [(]''?0''?[)]')
    THEN (SELECT min(o.occurred_at) FROM (
        SELECT v.occurred_at FROM leasequeue_leaseevent v WHERE v.occurred_at >= '-infinity' LIMIT 100) o) END
