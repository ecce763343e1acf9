-- Purpose: wait for all writers of the lease log, and block new ones until the epoch has begun.
LOCK TABLE ONLY leasequeue_leaseevent IN SHARE ROW EXCLUSIVE MODE
