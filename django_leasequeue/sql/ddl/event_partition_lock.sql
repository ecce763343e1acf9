-- Purpose: lock an old partition of the lease log, to check it again before it is dropped.
-- Names: partition.
LOCK TABLE {partition} IN ACCESS EXCLUSIVE MODE
