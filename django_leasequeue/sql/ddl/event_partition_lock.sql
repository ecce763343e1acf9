-- Purpose: lock an old partition of the lease log, to look at it once more before it goes.
-- Names: partition.
LOCK TABLE {partition} IN ACCESS EXCLUSIVE MODE
