-- Purpose: end leased jobs: completed (ack) or failed by the worker's word. Removes the job, keeps its result when the
--   queue or the job asks for it, writes the event, tells who waits for the reply, and the stream that it was leased to:
--   all in one statement.
-- Parameters: project, queue (null: any), node; arrays of equal length or empty: seqs, claims (tokens, null: unfenced),
--   states (1 completed, 2 failed), results, bodies, error_types, errors, records (json), fingerprints, ttls (ms);
--   now, autocommit.
--   A result that somebody waits for is kept for a minute even where the queue keeps none.
-- Index: leasequeue_job_pkey, leasequeue_claim_pkey.
-- Returns: the seqs that were ended.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), i AS MATERIALIZED (
    SELECT * FROM ROWS FROM (
        unnest(%(seqs)s::bigint[]), unnest(%(claims)s::bigint[]), unnest(%(states)s::int[]), unnest(%(results)s::text[]),
        unnest(%(bodies)s::bytea[]), unnest(%(error_types)s::text[]), unnest(%(errors)s::text[]),
        unnest(%(records)s::text[]), unnest(%(fingerprints)s::text[]), unnest(%(ttls)s::bigint[])
    ) AS u(i_seq, token, outcome, result, result_body, new_error_type, new_error, record, new_fingerprint, ttl)
), d AS (
    DELETE FROM leasequeue_job j USING i, leasequeue_queue q, t
    WHERE j.seq = i.i_seq AND j.state = 2 AND j.node = %(node)s::text
        AND q.id = j.queue_id AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (i.token IS NULL OR j.claim = i.token) AND (q.late_ack = 'accept' OR j.deadline >= t.now)
    RETURNING j.*, i.*, COALESCE(i.ttl, j.result_ttl_ms, NULLIF(q.result_ttl_ms, 0),
        CASE WHEN j.reply_to IS NOT NULL THEN 60000 ELSE 0 END) AS keep_ms, t.now, q.durability
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, created_at, first_claimed_at, claimed_at, finished_at, expires_at,
        claim, deliveries, rank, state, key, name, tag, node, data, meta, body, result, result_body, progress, errors,
        error_type, error, fingerprint)
    SELECT d.seq, d.queue_id, d.created_at, d.first_claimed_at, d.claimed_at, d.now, d.now + d.keep_ms * interval '1 ms',
        d.claim, d.deliveries, d.rank, d.outcome, d.key, d.name, d.tag, d.node, d.data, d.meta, d.body,
        d.result::jsonb, d.result_body, d.progress,
        CASE WHEN d.record IS NULL THEN d.errors ELSE COALESCE(d.errors, '[]') || d.record::jsonb END,
        COALESCE(d.new_error_type, d.error_type), COALESCE(d.new_error, d.error),
        COALESCE(d.new_fingerprint, d.fingerprint)
    FROM d WHERE d.keep_ms > 0
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL DO UPDATE SET
        seq = excluded.seq, created_at = excluded.created_at, first_claimed_at = excluded.first_claimed_at,
        claimed_at = excluded.claimed_at, finished_at = excluded.finished_at, expires_at = excluded.expires_at,
        claim = excluded.claim, deliveries = excluded.deliveries, rank = excluded.rank, state = excluded.state,
        name = excluded.name, tag = excluded.tag, node = excluded.node, data = excluded.data, meta = excluded.meta,
        body = excluded.body, result = excluded.result, result_body = excluded.result_body,
        progress = excluded.progress, errors = excluded.errors, error_type = excluded.error_type,
        error = excluded.error, fingerprint = excluded.fingerprint
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at,
        deadline, name, detail)
    SELECT (SELECT pg_current_xact_id()::text::bigint), d.now, d.queue_id, d.seq, CASE d.outcome WHEN 1 THEN 5 ELSE 6 END,
        d.node, d.deliveries, d.claim, d.created_at, d.deadline, d.name,
        CASE WHEN d.outcome = 2 THEN jsonb_build_object('error_type', d.new_error_type, 'fingerprint', d.new_fingerprint)
        END
    FROM d
)
SELECT d.seq, CASE WHEN d.reply_to IS NOT NULL
    THEN (SELECT string_agg(pg_notify(c, d.seq || ':' || d.outcome || ':' || COALESCE(d.key, ''))::text, '')
        FROM string_to_table(d.reply_to, ' ') c) END,
    (SELECT CASE WHEN %(autocommit)s::bool AND bool_and(durability <> 'fsync')
        THEN set_config('synchronous_commit', 'off', true) END FROM d),
    (SELECT count(pg_notify(split_part(c.connection, ':', 1), split_part(c.connection, ':', 2))::text)
        FROM leasequeue_claim c WHERE c.id = ANY (ARRAY(SELECT claim FROM d)) AND c.connection IS NOT NULL)
FROM d
