-- Purpose: end leased jobs: completed (ack) or failed by the worker. Takes them out of their claims, keeps the
--   outcome when the queue or the job asks for it (else the job goes), writes the events, tells who waits for the
--   reply, and the stream that it was leased to: all in one statement.
-- Parameters: project, queue (null: any), node, tokens (each once); arrays of equal length or empty: seqs, claims
--   (their tokens), states (1 completed, 2 failed), results, bodies, error_types, errors, tracebacks, fingerprints,
--   ttls (ms), rans (ms that the handler ran); now, autocommit, alone. A small result goes to our own callers with the
--   notification, and the time of the enqueue, by which they know their job. A result that a caller waits for is kept
--   for a minute even where the queue keeps none.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey (of jobs with something unusual, and of those that go),
--   leasequeue_attempt_job, leasequeue_deadletter_pkey, leasequeue_floor_place.
-- Pages: 190 + 10 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now), claims AS MATERIALIZED (
    SELECT c.token, c.part, c.queue_id, c.created_at, c.deadline, c.connection, c.flags, c.name, c.seqs, c.deliveries,
        q.result_ttl_ms, q.durability
    FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    WHERE c.token = ANY (%(tokens)s::bigint[]) AND {may_settle((SELECT now FROM clock))}
    ORDER BY c.token, c.part FOR NO KEY UPDATE OF c
), leases AS MATERIALIZED (
    SELECT claims.token, claims.part, claims.flags, u.seq, COALESCE(u.deliveries, 1) AS deliveries, i.*
    FROM claims CROSS JOIN LATERAL unnest(claims.seqs, claims.deliveries) AS u(seq, deliveries)
    LEFT JOIN ROWS FROM (
        unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(states)s::int[]),
            unnest(%(results)s::text[]),
        unnest(%(bodies)s::bytea[]), unnest(%(error_types)s::text[]), unnest(%(errors)s::text[]),
        unnest(%(tracebacks)s::text[]), unnest(%(fingerprints)s::text[]), unnest(%(ttls)s::bigint[]),
            unnest(%(rans)s::int[])
    ) AS i(i_seq, i_claim, state, result, body, error_type, error, traceback, fingerprint, ttl, ran)
        ON i.i_seq = u.seq AND i.i_claim = claims.token
), jobs AS MATERIALIZED (
    -- A caller that joined or set a TTL while this waited for the claim changed the job as well: read it as it is then.
    -- One that has failed waits for an atomic step of it that is being committed.
    SELECT * FROM (
        SELECT seq, name, key, reply_to, result_ttl_ms, created_at FROM leasequeue_job
        WHERE seq = ANY (ARRAY(SELECT seq FROM leases WHERE i_seq IS NOT NULL
            AND (flags & {REPLY|RESULT_TTL} <> 0 OR state = {result.FAILED}))) FOR UPDATE) a
    UNION ALL
    SELECT seq, name, key, NULL, NULL, NULL FROM leasequeue_job
    WHERE seq = ANY (ARRAY(SELECT seq FROM leases WHERE i_seq IS NOT NULL AND flags & {REPLY|RESULT_TTL|MIXED} = {MIXED}
        AND state <> {result.FAILED}))
), done AS MATERIALIZED (
    SELECT leases.*, claims.queue_id, claims.created_at AS claimed_at, claims.deadline, clock.now, jobs.reply_to,
        jobs.key, jobs.created_at, CASE WHEN claims.flags & {MIXED} <> 0 THEN jobs.name ELSE claims.name END AS name,
        COALESCE(leases.ttl, jobs.result_ttl_ms, NULLIF(claims.result_ttl_ms, 0), CASE
            WHEN jobs.reply_to IS NOT NULL THEN 60000 ELSE 0 END) AS keep
    FROM clock, leases JOIN claims ON claims.token = leases.token AND claims.part = leases.part
    LEFT JOIN jobs ON jobs.seq = leases.seq WHERE leases.i_seq IS NOT NULL
), remaining AS MATERIALIZED (
    SELECT token, part, array_agg(seq) FILTER (WHERE i_seq IS NULL) AS seqs,
        array_agg(deliveries) FILTER (WHERE i_seq IS NULL) AS deliveries
    FROM leases GROUP BY token, part HAVING count(i_seq) > 0
), {shrink(%(tokens)s::bigint[])}, kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state,
        node, result, result_body, error_type, error, fingerprint)
    SELECT seq, queue_id, token, claimed_at, now, now + keep * interval '1 ms', deliveries, state,
        %(node)s::text, result::json, body, error_type, error, fingerprint
    FROM done WHERE keep > 0
), attempts AS (
    INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
    SELECT seq, queue_id, now, deliveries, %(node)s::text, error_type, COALESCE(error, ''),
        COALESCE(traceback, ''), COALESCE(fingerprint, '')
    FROM done WHERE keep > 0 AND error_type IS NOT NULL
), dropped AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM done WHERE keep = 0)) AND {removing()}
), forgotten AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM done
        WHERE keep = 0 AND flags & {FAILED} <> 0))
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM done WHERE flags & {DEAD_LETTER} <> 0))
), head AS (
    {note_highest(SELECT done.queue_id, done.now, max(done.seq) AS high FROM done GROUP BY done.queue_id, done.now)}
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs,
        deliveries, ran, detail)
    SELECT {txid()}, now, queue_id, token, min(seq), max(seq),
        CASE state WHEN {result.COMPLETED} THEN {event.ACKED} ELSE {event.FAILED} END, %(node)s::text, name,
        array_agg(seq), array_agg(deliveries), CASE WHEN count(ran) > 0 THEN array_agg(ran) END,
        CASE WHEN state = {result.FAILED} THEN jsonb_build_object('error_type', error_type, 'fingerprint',
            fingerprint) END
    FROM done GROUP BY now, queue_id, token, state, name, error_type, fingerprint
)
SELECT done.seq, CASE WHEN done.reply_to IS NOT NULL
    THEN (SELECT string_agg(pg_notify(c, done.seq || CASE WHEN starts_with(c, 'leasequeue_reply_')
                AND done.state = {result.COMPLETED} AND done.body IS NULL AND octet_length(COALESCE(done.result,
                    '')) <= 1000
            THEN ':0:' || (extract(epoch FROM done.created_at) * 1000000)::bigint || ':' || COALESCE(done.result, '')
            ELSE ':' || done.state || ':' || COALESCE(done.key, '') END)::text, '')
        FROM string_to_table(done.reply_to, ' ') c) END,
    (SELECT {lazily(bool_and(durability <> 'fsync'))} FROM claims),
    {tell_streams()} FROM done
