-- Purpose: a table like the lease log, to become its next partition. Locks nothing that anybody waits for.
-- Names: partition.
CREATE TABLE {partition} (LIKE leasequeue_leaseevent INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
