-- Purpose: the lag of the registered consumers of the lease log.
-- Parameters: size (consumers: the first by name), now.
-- Index: the unique index on name; leasequeue_event_txid (BRIN) of each partition, up to the first 100 rows that a
--   consumer has not read.
-- Pages: 40 + 40 a row
-- Returns: seconds are those since the oldest of the first 100 rows of the log that it has not read (nearly the oldest
--   of all: rows lie nearly in the order of events; 0: it has read all).
{keeps_host_settings(upkeep/plans.sql has set the planner: BRIN needs bitmaps)}
WITH clock AS MATERIALIZED (
    SELECT {now()} AS now, {horizon()} AS horizon
), consumers AS MATERIALIZED (
    SELECT c.name, c.txid, c.event, c.overtaken_at FROM leasequeue_lakeconsumer c ORDER BY c.name LIMIT %(size)s::int
)
SELECT consumers.name AS consumer,
    GREATEST(clock.horizon - 1 - GREATEST(consumers.txid, leasequeue_epoch() << {TXID_BITS}), 0) AS transactions,
    COALESCE(GREATEST(extract(epoch FROM clock.now - e.occurred_at), 0), 0)::float8 AS seconds,
    consumers.overtaken_at IS NOT NULL AS given_up
FROM clock, consumers CROSS JOIN LATERAL (
    SELECT min(n.occurred_at) AS occurred_at FROM (
        SELECT r.occurred_at FROM leasequeue_leaseevent r
        WHERE r.txid >= consumers.txid AND (r.txid, r.id) > (consumers.txid, consumers.event) LIMIT 100) n) e
ORDER BY consumers.name
