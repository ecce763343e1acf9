-- Purpose: the lowest transaction id among the events that fell into the default partition.
-- Index: none: the default partition is empty, or small.
-- Pages: whole tables: the default partition, which is empty or small.
SELECT min(txid) FROM leasequeue_leaseevent_default
