-- Purpose: let the space of deleted jobs be used again. Tables that the account does not own are left alone.
VACUUM leasequeue_job, leasequeue_jobresult, leasequeue_claim
