-- Purpose: let the planner know a lease log that grew by a made-up history; summarises the BRIN indexes as well.
-- Index: all of the lease log's.
-- Pages: whole tables: a sample of the log.
VACUUM (ANALYZE) leasequeue_leaseevent
