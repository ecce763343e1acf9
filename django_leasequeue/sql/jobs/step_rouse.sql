-- Purpose: end the sleep of a job, or the wait for an event that did not come in time.
-- Parameters: seq, now.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 40
UPDATE leasequeue_jobstep SET until = LEAST(until, {now()})
WHERE seq = %(seq)s::bigint AND value IS NULL RETURNING name, event
