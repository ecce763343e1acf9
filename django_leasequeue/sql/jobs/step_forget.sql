-- Purpose: remove the steps of deleted jobs, a part of the table at a time.
-- Parameters: after (number of a job, exclusive), size (steps that are looked at; all of the last job go with it).
-- Index: leasequeue_jobstep_pkey, leasequeue_job_pkey.
-- Pages: 20 + 8 a row
-- Returns: the last number that was looked at (null: there is none behind it), how many steps went.
WITH looked AS MATERIALIZED (
    SELECT DISTINCT s.seq FROM (SELECT s.seq FROM leasequeue_jobstep s WHERE s.seq > %(after)s::bigint
        ORDER BY s.seq, s.name LIMIT %(size)s::int) s
), gone AS (
    DELETE FROM leasequeue_jobstep WHERE seq = ANY (ARRAY(
        SELECT looked.seq FROM looked WHERE NOT EXISTS (SELECT FROM leasequeue_job j
            WHERE j.seq = looked.seq OFFSET 0))) RETURNING seq
)
SELECT (SELECT max(seq) FROM looked), (SELECT count(*) FROM gone)
