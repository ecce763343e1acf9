-- Purpose: move the events that this server wrote before the next epoch began into it, so that they come after those
--   that were copied. Such a row was written by the transaction that it names or one inside it, after the copy.
-- Parameters: epoch (the next), low, high (transactions, exclusive above).
-- Index: leasequeue_event_txid (BRIN), leasequeue_timeline_pkey. (Run it under upkeep/plans: BRIN needs bitmaps.)
-- Pages: 900
WITH noted AS MATERIALIZED (
    SELECT l.noted_at - interval '1 minute' AS since, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS newest
    FROM leasequeue_timeline l ORDER BY l.timeline DESC LIMIT 1
), moved AS (
    UPDATE leasequeue_leaseevent e SET txid = (%(epoch)s::bigint << {TXID_BITS}) + pg_current_xact_id()::text::bigint
    FROM noted
    WHERE e.txid >= (leasequeue_epoch() << {TXID_BITS}) + %(low)s::bigint
        AND e.txid < (leasequeue_epoch() << {TXID_BITS}) + %(high)s::bigint
        AND e.occurred_at > noted.since
        AND noted.newest - ((noted.newest - e.xmin::text::bigint) & 4294967295)
            >= e.txid & ((1::bigint << {TXID_BITS}) - 1)
    RETURNING e.id
)
SELECT count(*) FROM moved
