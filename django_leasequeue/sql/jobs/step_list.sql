-- Purpose: the values of a job's steps.
-- Parameters: seq, size.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 20 + 2 a row
SELECT name, value::text, number, undo FROM leasequeue_jobstep WHERE seq = %(seq)s::bigint
ORDER BY name LIMIT %(size)s::int
