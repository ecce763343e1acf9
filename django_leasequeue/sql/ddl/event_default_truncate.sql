-- Purpose: empty the default partition of the lease log.
TRUNCATE leasequeue_leaseevent_default
