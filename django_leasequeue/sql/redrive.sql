-- Purpose: dead letters back to a live queue: in place (target = their own queue) or moved; deliveries start again at 0.
--   A letter that goes home has its old rank.
-- Parameters: project, queue (name of the dead letters' topic), target (name), seqs, delays (ms, or empty); now.
-- Index: leasequeue_job_pkey, leasequeue_job_key.
-- Returns: seq, outcome (0 ready, 1 delayed, -1 its key is taken in the target), reason text.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, pg_current_xact_id()::text::bigint AS txid
), q AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), target AS MATERIALIZED (
    SELECT id, name, priority_order FROM leasequeue_queue
    WHERE project = %(project)s AND name = %(target)s AND type = 'queue'
), i AS MATERIALIZED (
    SELECT * FROM ROWS FROM (unnest(%(seqs)s::bigint[]), unnest(%(delays)s::bigint[])) AS u(i_seq, delay)
), s AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.state, COALESCE(i.delay, 0) AS delay, target.id AS target,
        j.queue_id <> target.id AND j.key IS NOT NULL AND EXISTS (
            SELECT FROM leasequeue_job k WHERE k.key = j.key AND k.queue_id = target.id) AS taken
    FROM i JOIN leasequeue_job j ON j.seq = i.i_seq, q, target
    WHERE j.queue_id + 0 = q.id
        AND (j.state = 3 OR (j.state IN (0, 4) AND j.dead_at IS NOT NULL AND j.queue_id <> target.id))
    ORDER BY j.seq FOR UPDATE OF j SKIP LOCKED
), r AS (
    UPDATE leasequeue_job j SET state = CASE WHEN s.delay > 0 THEN 1 ELSE 0 END,
        available_at = CASE WHEN s.delay > 0 THEN t.now + s.delay * interval '1 ms' END,
        position = nextval('leasequeue_job_seq_seq'), deliveries = 0, dead_at = NULL, expires_at = NULL
    FROM s, t WHERE j.seq = s.seq AND s.queue_id = s.target
    RETURNING j.seq, j.queue_id, j.rank, j.state, j.created_at, j.name
), gone AS (
    DELETE FROM leasequeue_job j USING s WHERE j.seq = s.seq AND s.queue_id <> s.target AND NOT s.taken
    RETURNING j.*, s.delay, s.target
), numbered AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS new_seq, g.* FROM gone g
), new AS (
    INSERT INTO leasequeue_job (seq, queue_id, position, rank, state, available_at, created_at, deliveries, source_queue,
        source_seq, max_deliveries, result_ttl_ms, key, name, tag, origin, data, meta, body, progress, errors, error_type,
        error, fingerprint)
    SELECT n.new_seq, n.target, n.new_seq, CASE WHEN n.source_queue = n.target THEN n.rank ELSE 0 END, CASE WHEN n.delay > 0 THEN 1 ELSE 0 END,
        CASE WHEN n.delay > 0 THEN t.now + n.delay * interval '1 ms' END, t.now, 0, n.queue_id, n.seq, n.max_deliveries,
        n.result_ttl_ms, n.key, n.name, n.tag, n.origin, n.data, n.meta, n.body, n.progress, n.errors, n.error_type, n.error, n.fingerprint
    FROM numbered n, t
    RETURNING seq, source_seq, queue_id, rank, state, created_at, name
), floors AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value)
    SELECT DISTINCT n.queue_id, 0, n.rank, 0 FROM new n WHERE NOT EXISTS (
        SELECT FROM leasequeue_queuefloor f WHERE f.queue_id = n.queue_id AND f.kind = 0 AND f.rank = n.rank)
    ORDER BY n.rank
    ON CONFLICT DO NOTHING
), remembered AS (
    INSERT INTO leasequeue_topicstate AS s (queue_id, head_seq, last_write_at)
    SELECT queue_id, max(seq), max(created_at) FROM gone GROUP BY queue_id
    ON CONFLICT (queue_id) DO UPDATE SET head_seq = GREATEST(s.head_seq, excluded.head_seq),
        last_write_at = GREATEST(s.last_write_at, excluded.last_write_at), records = NULL, bytes = NULL
), uncounted AS (
    UPDATE leasequeue_topicstate s SET records = NULL, bytes = NULL FROM target WHERE s.queue_id = target.id
        AND s.records IS NOT NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, enqueued_at, name, detail)
    SELECT t.txid, t.now, r.queue_id, r.seq, 9, r.created_at, r.name, NULL FROM r, t
    UNION ALL
    SELECT t.txid, t.now, n.queue_id, n.seq, 9, n.created_at, n.name,
        jsonb_build_object('to', target.name, 'to_seq', n.new_seq) FROM numbered n, t, target
    UNION ALL
    SELECT t.txid, t.now, n.queue_id, n.seq, 1, n.created_at, n.name,
        jsonb_build_object('redriven_from', n.source_seq) FROM new n, t
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, target.id::int)
        THEN pg_advisory_unlock(1280657731, target.id::int)::text
        ELSE pg_notify('leasequeue', 'q' || target.id)::text END AS sent
    FROM target WHERE EXISTS (SELECT FROM r) OR EXISTS (SELECT FROM new)
)
SELECT s.seq, CASE WHEN s.taken THEN -1 WHEN s.delay > 0 THEN 1 ELSE 0 END, NULL::bigint, (SELECT sent FROM wake)
FROM s WHERE s.taken OR s.queue_id = s.target
UNION ALL
SELECT n.source_seq, n.state::int, n.seq, (SELECT sent FROM wake) FROM new n
