-- Purpose: whether a range of the lease log, or the default partition, still holds events that must stay.
-- Parameters: low, high (numbers; both null: the default partition), days (of retention), txid (a reader still needs
--   events of this transaction and later ones; null: none), now.
-- Index: leasequeue_event_occurred and leasequeue_event_txid (BRIN) of one partition.
-- Pages: 280
-- Returns: whether there is an event younger than the retention, whether there is one that a reader needs.
WITH cutoff AS MATERIALIZED (
    SELECT {now()} - %(days)s::float8 * interval '1 day' AS cutoff
)
SELECT
    CASE WHEN %(low)s::bigint IS NULL
        THEN EXISTS (SELECT FROM leasequeue_leaseevent_default e WHERE e.occurred_at >= (SELECT cutoff FROM cutoff))
        ELSE EXISTS (SELECT FROM leasequeue_leaseevent e WHERE e.id >= %(low)s::bigint AND e.id < %(high)s::bigint
            AND e.occurred_at >= (SELECT cutoff FROM cutoff)) END,
    CASE WHEN %(txid)s::bigint IS NULL THEN false WHEN %(low)s::bigint IS NULL
        THEN EXISTS (SELECT FROM leasequeue_leaseevent_default e WHERE e.txid >= %(txid)s::bigint)
        ELSE EXISTS (SELECT FROM leasequeue_leaseevent e WHERE e.id >= %(low)s::bigint AND e.id < %(high)s::bigint
            AND e.txid >= %(txid)s::bigint) END
