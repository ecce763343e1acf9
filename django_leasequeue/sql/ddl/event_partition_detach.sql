-- Purpose: take a partition out of the lease log. Locks the whole log for an instant. (CONCURRENTLY is not allowed on a
--   table with a default partition.)
-- Names: partition.
ALTER TABLE leasequeue_leaseevent DETACH PARTITION {partition}
