-- Purpose: keep what held jobs report of themselves.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length: seqs, claims (their tokens), values
--   (json texts); now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey.
-- Pages: 170 + 14 a row
-- Returns: the seqs whose progress was kept.
WITH t AS MATERIALIZED (SELECT {now()} AS now), k AS MATERIALIZED (
    SELECT c.token, c.seqs, q.leases_durable FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE
        AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (q.late_ack = 'accept' OR c.deadline >= (SELECT now FROM t))
), i AS MATERIALIZED (
    SELECT i.seq, i.value
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(values)s::text[])) AS i(seq, claim, value)
    JOIN k ON k.token = i.claim AND i.seq = ANY (k.seqs)
), v AS MATERIALIZED (
    SELECT array_agg(seq) AS seqs, array_agg(value) AS vals FROM i
), x AS (
    -- By place in an array: a join would read all of them again for each.
    UPDATE leasequeue_job j SET progress = (SELECT v.vals[array_position(v.seqs, j.seq)]::json FROM v)
    WHERE j.seq = ANY (ARRAY(SELECT seq FROM i)) RETURNING j.seq
)
SELECT x.seq, (SELECT {lazily(bool_and(NOT leases_durable))} FROM k) FROM x
