-- Purpose: lock the default partition of the lease log, to read and empty it.
LOCK TABLE leasequeue_leaseevent_default IN ACCESS EXCLUSIVE MODE
