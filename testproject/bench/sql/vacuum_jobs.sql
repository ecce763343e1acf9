-- Purpose: let the space of deleted jobs be used again, and have the statistics of what was filled in: what autovacuum would
--   do in the middle of a measurement. Tables that the account does not own are left alone.
VACUUM (ANALYZE) leasequeue_job, leasequeue_ready, leasequeue_delayed, leasequeue_claim, leasequeue_jobresult
