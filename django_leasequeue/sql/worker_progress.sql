-- Purpose: keep how far running jobs are, as their handlers say.
-- Parameters: node; arrays of equal length: seqs, claims (tokens), progress (json texts); now, autocommit.
-- Index: leasequeue_job_pkey.
-- Returns: the seqs that are still held.
WITH i AS MATERIALIZED (
    SELECT * FROM ROWS FROM (
        unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(progress)s::text[])
    ) AS u(i_seq, token, progress)
), x AS (
    UPDATE leasequeue_job j SET progress = i.progress::jsonb FROM i
    WHERE j.seq = i.i_seq AND j.state = 2 AND j.node = %(node)s::text AND j.claim = i.token
    RETURNING j.seq
)
SELECT x.seq, (SELECT CASE WHEN %(autocommit)s::bool THEN set_config('synchronous_commit', 'off', true) END) FROM x
