-- Purpose: staged jobs become jobs, with their events and floors, in one statement; a key that is taken adds nothing.
-- Parameters: parts, project, origin, most (rows moved at most).
-- Index: leasequeue_lakestage_part, leasequeue_queue_name, leasequeue_job_key, leasequeue_result_key.
-- Returns: how many were added.
WITH t AS MATERIALIZED (
    -- The transaction id comes before the first number (DESIGN 6).
    SELECT clock_timestamp() AS now, pg_current_xact_id()::text::bigint AS txid
), s AS (
    DELETE FROM leasequeue_lakestage WHERE id = ANY (ARRAY(
        SELECT id FROM leasequeue_lakestage WHERE part = ANY (%(parts)s::uuid[]) ORDER BY id LIMIT %(most)s::bigint))
    RETURNING *
), i AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS seq, o.* FROM (
        SELECT s.*, q.id AS queue_id, q.type, q.ttl_ms AS queue_ttl, q.log_enqueued,
            CASE q.priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END
                * LEAST(GREATEST(COALESCE(s.priority, 0), q.priority_min), q.priority_max) AS rank
        FROM s JOIN leasequeue_queue q ON q.project = %(project)s::text AND q.name = s.queue, t
        WHERE s.key IS NULL OR q.dedup_until <> 'result_ttl' OR NOT EXISTS (
            SELECT FROM leasequeue_jobresult r WHERE r.key = s.key AND r.queue_id = q.id AND r.expires_at > t.now
                AND r.state <> 3)
        ORDER BY s.id
    ) o
), new AS (
    INSERT INTO leasequeue_job (seq, queue_id, position, rank, state, available_at, expires_at, created_at, deliveries,
        key, name, tag, data, body, meta, result_ttl_ms, max_deliveries, origin, source_seq)
    SELECT i.seq, i.queue_id, i.seq, i.rank,
        CASE WHEN i.type = 'log' THEN 4 WHEN i.run_at > t.now THEN 1 ELSE 0 END,
        CASE WHEN i.run_at > t.now THEN i.run_at END,
        CASE WHEN COALESCE(i.ttl_ms, i.queue_ttl) > 0 THEN t.now + COALESCE(i.ttl_ms, i.queue_ttl) * interval '1 ms' END,
        t.now, 0, i.key, i.name, i.tag, i.data, i.body, i.meta, i.result_ttl_ms, i.max_deliveries, %(origin)s::text, i.source_seq
    FROM i, t
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL DO NOTHING
    RETURNING seq, queue_id, rank, state, name, source_seq
), floors AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value)
    SELECT DISTINCT n.queue_id, 0, n.rank, 0 FROM new n
    WHERE n.state <> 4 AND NOT EXISTS (
        SELECT FROM leasequeue_queuefloor f WHERE f.queue_id = n.queue_id AND f.kind = 0 AND f.rank = n.rank)
    ON CONFLICT DO NOTHING
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, enqueued_at, name, detail)
    SELECT t.txid, t.now, n.queue_id, n.seq, 1, t.now, n.name,
        CASE WHEN n.source_seq IS NOT NULL THEN jsonb_build_object('redriven_from', n.source_seq) END
    FROM new n JOIN leasequeue_queue q ON q.id = n.queue_id, t WHERE q.log_enqueued AND n.state <> 4
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, w.queue_id::int)
        THEN pg_advisory_unlock(1280657731, w.queue_id::int)::text
        ELSE pg_notify('leasequeue', 'q' || w.queue_id)::text END AS sent
    FROM (SELECT DISTINCT queue_id FROM new WHERE state IN (0, 4)) w
)
SELECT (SELECT count(*) FROM new), (SELECT count(sent) FROM wake)
