-- Purpose: complete jobs with nothing unusual about them, of claims with nothing unusual: finish.sql for the common case.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length or empty: seqs, claims (their
--   tokens), results, rans (ms); now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_floor_place; inserts.
-- Pages: 180 + 10 a row
-- Returns: one row: the seqs that were ended, null for none; about those that are missing finish.sql knows more.
WITH k AS MATERIALIZED (
    SELECT c.token, c.part, c.queue_id, c.created_at, c.connection, c.flags, c.name, c.seqs, c.deliveries, n.now, q.result_ttl_ms AS keep,
        n.now + q.result_ttl_ms * interval '1 ms' AS expires, q.durability
    FROM (SELECT {now()} AS now OFFSET 0) n, leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE AND c.flags & 127 = 0
        AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (q.late_ack = 'accept' OR c.deadline >= n.now)
    ORDER BY c.token, c.part FOR NO KEY UPDATE OF c
), y AS MATERIALIZED (
    SELECT k.token, k.part, u.seq, u.deliveries, i.seq IS NOT NULL AS done, i.result, i.ran
    FROM k CROSS JOIN LATERAL unnest(k.seqs, k.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(results)s::text[]), unnest(%(rans)s::int[]))
        AS i(seq, claim, result, ran) ON i.seq = u.seq AND i.claim = k.token
), x AS (
    SELECT y.token, k.queue_id, k.created_at, k.name, k.now, k.keep, k.expires, y.seq, COALESCE(y.deliveries, 1) AS deliveries,
        y.result, y.ran
    FROM y JOIN k ON k.token = y.token AND k.part = y.part WHERE y.done
), m AS MATERIALIZED (
    SELECT y.token, y.part, array_agg(y.seq) FILTER (WHERE NOT y.done) AS seqs, array_agg(y.deliveries) FILTER (WHERE NOT y.done) AS deliveries
    FROM y GROUP BY y.token, y.part HAVING bool_or(y.done)
), {shrink(%(tokens)s::bigint[])}, kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state, node, result)
    SELECT x.seq, x.queue_id, x.token, x.created_at, x.now, x.expires, x.deliveries, 1, %(node)s::text,
        x.result::json
    FROM x WHERE x.keep > 0
), dropped AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT x.seq FROM x WHERE x.keep = 0)) AND {removing()}
), head AS (
    {note_highest(SELECT x.queue_id, x.now, max(x.seq) AS high FROM x WHERE x.keep = 0 GROUP BY x.queue_id, x.now)}
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs, deliveries, ran)
    SELECT pg_current_xact_id()::text::bigint, x.now, x.queue_id, x.token, min(x.seq), max(x.seq), 5, %(node)s::text, x.name,
        array_agg(x.seq), CASE WHEN max(x.deliveries) > 1 THEN array_agg(x.deliveries) END,
        CASE WHEN count(x.ran) > 0 THEN array_agg(x.ran) END
    FROM x GROUP BY x.now, x.queue_id, x.token, x.name
)
SELECT (SELECT array_agg(x.seq) FROM x), {tell_streams()}, (SELECT {lazily(bool_and(k.durability <> 'fsync'))} FROM k),
    (SELECT CASE WHEN %(autocommit)s::bool AND bool_or(k.flags & 128 <> 0) THEN set_config('leasequeue.alone', 'ended', true) END FROM k)
