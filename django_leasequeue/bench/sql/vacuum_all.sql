-- Purpose: like vacuum_jobs, with the log and the small tables.
VACUUM leasequeue_job, leasequeue_jobresult, leasequeue_claim, leasequeue_leaseevent, leasequeue_queuefloor,
    leasequeue_queue
