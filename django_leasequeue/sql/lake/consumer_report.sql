-- Purpose: write the position of a consumer; register it if it is new; learn (once) whether retention had stopped
--   waiting for it.
-- Parameters: name, txid, event, horizon.
-- Index: the unique index on name.
-- Pages: 40
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now), was AS MATERIALIZED (
    SELECT overtaken_at FROM leasequeue_lakeconsumer WHERE name = %(name)s::text
), put AS (
    INSERT INTO leasequeue_lakeconsumer AS c (name, txid, event, horizon, registered_at, seen_at, moved_at)
    SELECT %(name)s::text, %(txid)s::bigint, %(event)s::bigint, %(horizon)s::bigint, now, now, now FROM clock
    ON CONFLICT (name) DO UPDATE SET txid = excluded.txid, event = excluded.event, horizon = excluded.horizon,
        seen_at = excluded.seen_at, overtaken_at = NULL,
        moved_at = CASE WHEN (c.txid, c.event) = (excluded.txid, excluded.event) THEN c.moved_at
            ELSE excluded.moved_at END
)
SELECT EXISTS (SELECT FROM was WHERE overtaken_at IS NOT NULL)
