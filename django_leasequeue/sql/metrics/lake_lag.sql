-- Purpose: how far the registered consumers of the lease log are behind.
-- Parameters: size (consumers: the first by name), now.
-- Index: the unique index on name; leasequeue_event_txid (BRIN) of each partition, up to the first 100 rows that a consumer has
--   not read. (Run it under upkeep/plans: BRIN needs bitmaps.)
-- Pages: 40 + 40 a row
-- Host: as upkeep/plans.sql set the planner: BRIN needs bitmaps.
-- Returns: name, transactions (of the whole cluster) that have ended since what it has read, seconds since the oldest of the
--   first 100 rows of the log that it has not read (nearly the oldest of all: rows lie nearly in the order of events; 0: it has
--   read all), whether retention waits for it no longer.
WITH t AS MATERIALIZED (
    SELECT {now()} AS now, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon
), c AS MATERIALIZED (
    SELECT c.name, c.txid, c.event, c.overtaken_at FROM leasequeue_lakeconsumer c ORDER BY c.name LIMIT %(size)s::int
)
SELECT c.name, GREATEST(t.horizon - 1 - c.txid, 0), COALESCE(GREATEST(extract(epoch FROM t.now - e.occurred_at), 0), 0)::float8,
    c.overtaken_at IS NOT NULL
FROM t, c CROSS JOIN LATERAL (
    SELECT min(n.occurred_at) AS occurred_at FROM (
        SELECT r.occurred_at FROM leasequeue_leaseevent r
        WHERE r.txid >= c.txid AND (r.txid, r.id) > (c.txid, c.event) LIMIT 100) n) e
ORDER BY c.name
