-- Purpose: analyze the lease log after a made-up history, and summarize its BRIN indexes.
-- Index: all of the lease log's.
-- Pages: whole tables: a sample of the log.
VACUUM (ANALYZE) leasequeue_leaseevent
