-- Purpose: like vacuum_jobs, with the log, the other places and the small tables.
VACUUM leasequeue_job, leasequeue_ready, leasequeue_delayed, leasequeue_claim, leasequeue_jobresult, leasequeue_deadletter,
    leasequeue_attempt, leasequeue_record, leasequeue_leaseevent, leasequeue_queuefloor, leasequeue_queuerank, leasequeue_queue
