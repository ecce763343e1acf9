-- Purpose: lock the default partition of the lease log, to look at it and to empty it.
LOCK TABLE leasequeue_leaseevent_default IN ACCESS EXCLUSIVE MODE
