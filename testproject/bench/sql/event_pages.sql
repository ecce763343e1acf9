-- Purpose: how long the partitions of the lease log are.
-- Returns: partition, pages.
SELECT i.inhrelid::bigint, pg_relation_size(i.inhrelid) / current_setting('block_size')::bigint
FROM pg_inherits i WHERE i.inhparent = 'leasequeue_leaseevent'::regclass
