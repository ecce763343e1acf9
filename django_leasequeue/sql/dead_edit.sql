-- Purpose: retry one dead letter with other data: a new job in its queue (a letter of a dead-letter topic: in the queue that
--   it came from) takes its place and names it as its source. The old one is remembered as cancelled, with its data.
-- Parameters: project, queue (where the letter is), seq, dead_at (the death that was seen), data (JSON), now.
-- Index: leasequeue_job_pkey, leasequeue_job_key.
-- Returns: new seq (null: nothing was done), queue of the new job, and why nothing was done: gone (or another transaction is
--   changing it), no_home, key_taken.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, pg_current_xact_id()::text::bigint AS txid
), q AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), s AS MATERIALIZED (
    SELECT j.seq, j.key, CASE WHEN j.state = 3 THEN j.queue_id ELSE j.source_queue END AS home, j.queue_id
    FROM leasequeue_job j, q WHERE j.seq = %(seq)s::bigint AND j.queue_id + 0 = q.id AND j.state IN (0, 3, 4)
        AND j.dead_at = %(dead_at)s::timestamptz
    FOR UPDATE OF j SKIP LOCKED
), target AS MATERIALIZED (
    SELECT h.id, h.name, h.result_ttl_ms, s.queue_id <> h.id AND s.key IS NOT NULL AND EXISTS (
        SELECT FROM leasequeue_job k WHERE k.key = s.key AND k.queue_id = h.id) AS taken
    FROM s JOIN leasequeue_queue h ON h.id = s.home AND h.type = 'queue'
), gone AS (
    DELETE FROM leasequeue_job j USING s, target WHERE j.seq = s.seq AND NOT target.taken RETURNING j.*
), numbered AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS new_seq, g.* FROM gone g
), new AS (
    INSERT INTO leasequeue_job (seq, queue_id, position, rank, state, created_at, deliveries, source_queue, source_seq,
        max_deliveries, result_ttl_ms, key, name, tag, origin, reply_to, data, meta, body, errors, error_type, error, fingerprint)
    SELECT n.new_seq, target.id, n.new_seq, n.rank, 0, t.now, 0, n.queue_id, n.seq, n.max_deliveries, n.result_ttl_ms, n.key,
        n.name, n.tag, n.origin, n.reply_to, %(data)s::text::jsonb, n.meta, n.body, n.errors, n.error_type, n.error, n.fingerprint
    FROM numbered n, target, t RETURNING seq, queue_id, rank, source_seq, created_at, name
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, created_at, first_claimed_at, claimed_at, finished_at, expires_at, deliveries,
        rank, state, name, tag, data, meta, body, result, progress, errors, error_type, error, fingerprint)
    SELECT n.seq, n.queue_id, n.created_at, n.first_claimed_at, n.claimed_at, t.now,
        t.now + GREATEST(COALESCE(n.result_ttl_ms, target.result_ttl_ms), 86400000) * interval '1 ms', n.deliveries, n.rank, 3,
        n.name, n.tag, n.data, n.meta, n.body, jsonb_build_object('edited_into', n.new_seq), n.progress, n.errors, n.error_type,
        n.error, n.fingerprint
    FROM numbered n, target, t ON CONFLICT DO NOTHING
), floors AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value)
    SELECT n.queue_id, 0, n.rank, 0 FROM new n WHERE NOT EXISTS (
        SELECT FROM leasequeue_queuefloor f WHERE f.queue_id = n.queue_id AND f.kind = 0 AND f.rank = n.rank)
    ON CONFLICT DO NOTHING
), uncounted AS (
    UPDATE leasequeue_topicstate s SET records = NULL, bytes = NULL FROM gone g WHERE s.queue_id = g.queue_id
        AND s.records IS NOT NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, enqueued_at, name, detail)
    SELECT t.txid, t.now, n.queue_id, n.seq, 9, n.created_at, n.name,
        jsonb_build_object('to', target.name, 'to_seq', n.new_seq, 'edited', true) FROM numbered n, t, target
    UNION ALL
    SELECT t.txid, t.now, n.queue_id, n.seq, 1, n.created_at, n.name,
        jsonb_build_object('redriven_from', n.source_seq, 'edited', true) FROM new n, t
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, n.queue_id::int)
        THEN pg_advisory_unlock(1280657731, n.queue_id::int)::text
        ELSE pg_notify('leasequeue', 'q' || n.queue_id)::text END AS sent
    FROM new n
)
SELECT n.seq, target.name, NULL, (SELECT sent FROM wake) FROM new n, target
UNION ALL
SELECT NULL, NULL, CASE WHEN target.taken THEN 'key_taken' WHEN EXISTS (SELECT FROM s) THEN 'no_home' ELSE 'gone' END, NULL
FROM q LEFT JOIN target ON true WHERE target.taken IS NOT FALSE
