-- Purpose: store the progress of held jobs.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length: seqs, claims (their
--   tokens), values (json texts); now, autocommit, alone.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey.
-- Pages: 170 + 14 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now), claims AS MATERIALIZED (
    SELECT c.token, c.seqs, q.leases_durable FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND {may_settle((SELECT now FROM clock))}
), reports AS MATERIALIZED (
    SELECT i.seq, i.value
    FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(values)s::text[])) AS i(seq,
        claim, value)
    JOIN claims ON claims.token = i.claim AND i.seq = ANY (claims.seqs)
), arrays AS MATERIALIZED (
    SELECT array_agg(seq) AS seqs, array_agg(value) AS vals FROM reports
), written AS (
    -- By place in an array: a join would read all of them again for each.
    UPDATE leasequeue_job j SET progress = (SELECT vals[array_position(seqs, j.seq)]::json FROM arrays)
    WHERE j.seq = ANY (ARRAY(SELECT seq FROM reports)) RETURNING j.seq
)
SELECT written.seq, (SELECT {lazily(bool_and(NOT leases_durable))} FROM claims) FROM written
