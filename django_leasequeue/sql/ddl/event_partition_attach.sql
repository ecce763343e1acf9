-- Purpose: make a table a partition of the lease log. Locks the log against other DDL only (not against writers), and
--   for an instant the default partition, which is empty and read only by readers of the whole log.
-- Names: partition. Literals: low, high.
ALTER TABLE leasequeue_leaseevent ATTACH PARTITION {partition} FOR VALUES FROM ({low}) TO ({high})
