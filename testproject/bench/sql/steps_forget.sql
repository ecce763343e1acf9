-- Purpose: the steps of jobs that are gone, as the reaper removes them.
DELETE FROM leasequeue_jobstep s WHERE NOT EXISTS (SELECT FROM leasequeue_job j WHERE j.seq = s.seq)
