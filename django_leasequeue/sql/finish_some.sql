-- Purpose: complete jobs with nothing unusual about them, of claims with nothing unusual: finish.sql for the common case.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length or empty: seqs, claims (their
--   tokens), results, rans (ms); now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_floor_place; inserts.
-- Returns: the seqs that were ended; about those that are missing finish.sql knows more.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), k AS MATERIALIZED (
    SELECT c.token, c.part, c.queue_id, c.created_at, c.connection, c.name, c.seqs, c.deliveries, q.result_ttl_ms AS keep, q.durability
    FROM leasequeue_claim c JOIN leasequeue_queue q ON q.id = c.queue_id
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND c.node = %(node)s::text AND c.flags = 0
        AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (q.late_ack = 'accept' OR c.deadline >= (SELECT now FROM t))
    ORDER BY c.token, c.part FOR NO KEY UPDATE OF c
), x AS MATERIALIZED (
    SELECT k.token, k.part, u.seq, u.deliveries, i.seq IS NOT NULL AS done, i.result, i.ran
    FROM k CROSS JOIN LATERAL unnest(k.seqs, k.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(results)s::text[]), unnest(%(rans)s::int[]))
        AS i(seq, claim, result, ran) ON i.seq = u.seq AND i.claim = k.token
), m AS MATERIALIZED (
    SELECT x.token, x.part, array_agg(x.seq) FILTER (WHERE NOT x.done) AS left_seqs,
        array_agg(x.deliveries) FILTER (WHERE NOT x.done) AS left_deliveries, array_agg(x.seq) FILTER (WHERE x.done) AS seqs,
        array_agg(x.deliveries) FILTER (WHERE x.done) AS deliveries,
        CASE WHEN count(x.ran) > 0 THEN array_agg(x.ran) FILTER (WHERE x.done) END AS rans
    FROM x GROUP BY x.token, x.part HAVING bool_or(x.done)
), gone AS (
    DELETE FROM leasequeue_claim c USING m WHERE c.token = m.token AND c.part = m.part AND m.left_seqs IS NULL
        AND c.token = ANY (%(tokens)s::bigint[])
), rest AS (
    UPDATE leasequeue_claim c SET seqs = m.left_seqs, deliveries = CASE WHEN c.deliveries IS NOT NULL THEN m.left_deliveries END
    FROM m WHERE c.token = m.token AND c.part = m.part AND m.left_seqs IS NOT NULL AND c.token = ANY (%(tokens)s::bigint[])
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state, node, result)
    SELECT x.seq, k.queue_id, k.token, k.created_at, t.now, t.now + k.keep * interval '1 ms', COALESCE(x.deliveries, 1), 1,
        %(node)s::text, x.result::json
    FROM t, x JOIN k ON k.token = x.token AND k.part = x.part WHERE x.done AND k.keep > 0
), dropped AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(
        SELECT x.seq FROM x JOIN k ON k.token = x.token AND k.part = x.part WHERE x.done AND k.keep = 0))
), head AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT h.queue_id, 3, 0, h.high, t.now FROM t, (
        SELECT k.queue_id, max(x.seq) AS high FROM x JOIN k ON k.token = x.token AND k.part = x.part
        WHERE x.done AND k.keep = 0 GROUP BY k.queue_id) h
    WHERE h.high > COALESCE((SELECT f.value FROM leasequeue_queuefloor f WHERE f.queue_id = h.queue_id AND f.kind = 3
        AND f.rank = 0 ORDER BY f.value DESC LIMIT 1), 0)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs, deliveries, ran)
    SELECT pg_current_xact_id()::text::bigint, t.now, k.queue_id, k.token, (SELECT min(s) FROM unnest(m.seqs) s),
        (SELECT max(s) FROM unnest(m.seqs) s), 5, %(node)s::text, k.name, m.seqs,
        CASE WHEN k.deliveries IS NOT NULL THEN m.deliveries END, m.rans
    FROM t, m JOIN k ON k.token = m.token AND k.part = m.part
)
SELECT x.seq, (SELECT count(pg_notify(split_part(k.connection, ':', 1), split_part(k.connection, ':', 2))::text)
        FROM k WHERE k.connection IS NOT NULL),
    (SELECT CASE WHEN %(autocommit)s::bool AND bool_and(durability <> 'fsync')
        THEN set_config('synchronous_commit', 'off', true) END FROM k)
FROM x WHERE x.done
