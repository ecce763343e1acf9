-- Purpose: the value of one step of a job.
-- Parameters: seq, name.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 10
SELECT name, value::text, number FROM leasequeue_jobstep WHERE seq = %(seq)s::bigint AND name = %(name)s::text
