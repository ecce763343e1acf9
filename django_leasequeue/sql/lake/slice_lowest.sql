-- Purpose: the lowest transaction id among the events of a range of numbers.
-- Parameters: low, high (exclusive).
-- Index: none: reads the range's partition.
-- Pages: whole tables: the partition that is asked for.
SELECT min(txid), {horizon()}
FROM leasequeue_leaseevent WHERE id >= %(low)s::bigint AND id < %(high)s::bigint
