-- Purpose: end leased jobs: completed (ack) or failed by the worker's word. Takes them out of their claims, keeps the outcome
--   when the queue or the job asks for it (else the job goes), writes the events, tells who waits for the reply, and the stream
--   that it was leased to: all in one statement.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length or empty: seqs, claims (their tokens),
--   states (1 completed, 2 failed), results, bodies, error_types, errors, tracebacks, fingerprints, ttls (ms), rans (ms that the
--   handler ran); now, autocommit.
--   A small result goes to our own callers with the notification, and the time of the enqueue, by which they know their job.
--   A result that a caller waits for is kept for a minute even where the queue keeps none.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey (of jobs with something unusual, and of those that go),
--   leasequeue_attempt_job, leasequeue_deadletter_pkey, leasequeue_floor_place.
-- Pages: 170 + 10 a row
-- Returns: the seqs that were ended.
WITH t AS MATERIALIZED (SELECT {now()} AS now), k AS MATERIALIZED (
    SELECT c.token, c.part, c.queue_id, c.created_at, c.deadline, c.connection, c.flags, c.name, c.seqs, c.deliveries, q.result_ttl_ms, q.durability
    FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    -- IS TRUE: no planner may go by the index of the node, through all of its claims.
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND (c.node = %(node)s::text) IS TRUE
        AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (q.late_ack = 'accept' OR c.deadline >= (SELECT now FROM t))
    ORDER BY c.token, c.part FOR NO KEY UPDATE OF c
), x AS MATERIALIZED (
    SELECT k.token, k.part, k.flags, u.seq, COALESCE(u.deliveries, 1) AS deliveries, i.*
    FROM k CROSS JOIN LATERAL unnest(k.seqs, k.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (
        unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(states)s::int[]), unnest(%(results)s::text[]),
        unnest(%(bodies)s::bytea[]), unnest(%(error_types)s::text[]), unnest(%(errors)s::text[]),
        unnest(%(tracebacks)s::text[]), unnest(%(fingerprints)s::text[]), unnest(%(ttls)s::bigint[]), unnest(%(rans)s::int[])
    ) AS i(i_seq, i_claim, state, result, body, error_type, error, traceback, fingerprint, ttl, ran)
        ON i.i_seq = u.seq AND i.i_claim = k.token
), j AS MATERIALIZED (
    -- A caller that joined or set a TTL while this waited for the claim changed the job as well: read it as it is then.
    SELECT * FROM (
        SELECT seq, name, key, reply_to, result_ttl_ms, created_at FROM leasequeue_job
        WHERE seq = ANY (ARRAY(SELECT seq FROM x WHERE x.i_seq IS NOT NULL AND flags & 3 <> 0)) FOR NO KEY UPDATE) a
    UNION ALL
    SELECT seq, name, key, NULL, NULL, NULL FROM leasequeue_job
    WHERE seq = ANY (ARRAY(SELECT seq FROM x WHERE x.i_seq IS NOT NULL AND flags & 19 = 16))
), d AS MATERIALIZED (
    SELECT x.*, k.queue_id, k.created_at AS claimed_at, k.deadline, t.now, j.reply_to, j.key, j.created_at,
        CASE WHEN k.flags & 16 <> 0 THEN j.name ELSE k.name END AS name,
        COALESCE(x.ttl, j.result_ttl_ms, NULLIF(k.result_ttl_ms, 0), CASE WHEN j.reply_to IS NOT NULL THEN 60000 ELSE 0 END) AS keep
    FROM t, x JOIN k ON k.token = x.token AND k.part = x.part LEFT JOIN j ON j.seq = x.seq WHERE x.i_seq IS NOT NULL
), m AS MATERIALIZED (
    SELECT x.token, x.part, array_agg(x.seq) FILTER (WHERE x.i_seq IS NULL) AS seqs,
        array_agg(x.deliveries) FILTER (WHERE x.i_seq IS NULL) AS deliveries
    FROM x GROUP BY x.token, x.part HAVING count(x.i_seq) > 0
), {shrink(%(tokens)s::bigint[])}, kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state, node, result,
        result_body, error_type, error, fingerprint)
    SELECT d.seq, d.queue_id, d.token, d.claimed_at, d.now, d.now + d.keep * interval '1 ms', d.deliveries, d.state,
        %(node)s::text, d.result::json, d.body, d.error_type, d.error, d.fingerprint
    FROM d WHERE d.keep > 0
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT d.seq, d.queue_id, d.now, d.deliveries, %(node)s::text, d.error_type, COALESCE(d.error, ''),
        COALESCE(d.traceback, ''), COALESCE(d.fingerprint, '')
    FROM d WHERE d.keep > 0 AND d.error_type IS NOT NULL
), dropped AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM d WHERE keep = 0)) AND {removing()}
), forgotten AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM d WHERE keep = 0 AND flags & 8 <> 0))
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM d WHERE flags & 4 <> 0))
), head AS (
    {note_highest(SELECT d.queue_id, d.now, max(d.seq) AS high FROM d GROUP BY d.queue_id, d.now)}
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs, deliveries, ran,
        detail)
    SELECT pg_current_xact_id()::text::bigint, d.now, d.queue_id, d.token, min(d.seq), max(d.seq),
        CASE d.state WHEN 1 THEN 5 ELSE 6 END, %(node)s::text, d.name, array_agg(d.seq), array_agg(d.deliveries),
        CASE WHEN count(d.ran) > 0 THEN array_agg(d.ran) END,
        CASE WHEN d.state = 2 THEN jsonb_build_object('error_type', d.error_type, 'fingerprint', d.fingerprint) END
    FROM d GROUP BY d.now, d.queue_id, d.token, d.state, d.name, d.error_type, d.fingerprint
)
SELECT d.seq, CASE WHEN d.reply_to IS NOT NULL
    THEN (SELECT string_agg(pg_notify(c, d.seq || CASE WHEN starts_with(c, 'leasequeue_reply_')
                AND d.state = 1 AND d.body IS NULL AND octet_length(COALESCE(d.result, '')) <= 1000
            THEN ':0:' || (extract(epoch FROM d.created_at) * 1000000)::bigint || ':' || COALESCE(d.result, '')
            ELSE ':' || d.state || ':' || COALESCE(d.key, '') END)::text, '')
        FROM string_to_table(d.reply_to, ' ') c) END,
    (SELECT {lazily(bool_and(durability <> 'fsync'))} FROM k),
    (SELECT CASE WHEN %(autocommit)s::bool AND bool_or(k.flags & 128 <> 0) THEN set_config('leasequeue.alone', 'ended', true) END FROM k),
    {tell_streams()} FROM d
