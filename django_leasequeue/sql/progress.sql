-- Purpose: keep what held jobs report of themselves.
-- Parameters: project, queue (null: any), node; arrays of equal length: seqs, claims (tokens; empty: unfenced), values (json
--   texts); now, autocommit.
-- Index: leasequeue_job_pkey.
-- Returns: the seqs whose progress was kept.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), i AS MATERIALIZED (
    SELECT * FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(values)s::text[]))
        AS u(i_seq, token, value)
), x AS (
    UPDATE leasequeue_job j SET progress = i.value::jsonb
    FROM i, leasequeue_queue q, t
    WHERE j.seq = i.i_seq AND j.state = 2 AND j.node = %(node)s::text
        AND q.id = j.queue_id AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (i.token IS NULL OR j.claim = i.token) AND (q.late_ack = 'accept' OR j.deadline >= t.now)
    RETURNING j.seq, q.leases_durable
)
SELECT x.seq, (SELECT CASE WHEN %(autocommit)s::bool AND bool_and(NOT leases_durable)
    THEN set_config('synchronous_commit', 'off', true) END FROM x)
FROM x
