-- Purpose: what the archive of a range of the lease log must add up to.
-- Parameters: low, high (exclusive).
-- Index: none: reads the range's partition.
-- Returns: rows; sums of id, txid, seq, kind; lowest and highest txid; first and last time.
SELECT count(*), sum(id::numeric), sum(txid::numeric), sum(seq::numeric), sum(kind::numeric), min(txid), max(txid),
    min(occurred_at), max(occurred_at)
FROM leasequeue_leaseevent WHERE id >= %(low)s::bigint AND id < %(high)s::bigint
