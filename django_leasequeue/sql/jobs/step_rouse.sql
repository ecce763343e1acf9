-- Purpose: what a job sleeps until or waits for is over: the sleep has ended, the event has not come in time.
-- Parameters: seq, now.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 40
-- Returns: name, event (null: a sleep), once for each.
UPDATE leasequeue_jobstep SET until = LEAST(until, COALESCE(%(now)s::timestamptz, clock_timestamp()))
WHERE seq = %(seq)s::bigint AND value IS NULL RETURNING name, event
