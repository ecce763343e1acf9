-- Purpose: add jobs. A key must not exist twice: live jobs (and, with dedup_until = result_ttl, remembered results) refuse
--   it; concurrent callers make one job. Keys go in order, so that two batches with the same keys cannot deadlock.
-- Parameters: project, queue, numbers (1 to the number of jobs: an array, whose guessed length lets PostgreSQL keep one
--   generic plan), origin, locked (the caller holds cap_lock); arrays of that length or empty: keys, names, tags, priorities, datas, metas, bodies, run_at, delays, ttls, reply_to, result_ttls, max_deliveries, origins; now,
--   autocommit.
-- Index: leasequeue_queue_name, leasequeue_job_key, leasequeue_result_key.
-- Returns, in input order: seq and state of the new job, or null and what is there: existing seq, existing state
--   (job state, or 10 + result state), whether it is a dead job past its time. All null: look again (lost a race). Last the id
--   of a queue with a cap whose lock is not held: nothing was added, take it and come again.
WITH q AS MATERIALIZED (
    SELECT * FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now,
        pg_current_xact_id()::text::bigint AS txid,
        CASE WHEN %(autocommit)s::bool AND q.durability <> 'fsync'
            THEN set_config('synchronous_commit', 'off', true) END AS relaxed
    FROM q
), there AS MATERIALIZED (
    SELECT j.key, j.seq, j.state, (j.state = 3 AND j.expires_at <= t.now) AS over FROM leasequeue_job j, q, t
    WHERE j.key = ANY (%(keys)s::text[]) AND j.queue_id = q.id
    UNION ALL
    SELECT r.key, r.seq, 10 + r.state, false FROM leasequeue_jobresult r, q, t
    WHERE r.key = ANY (%(keys)s::text[]) AND r.queue_id = q.id AND r.expires_at > t.now AND r.state <> 3
        AND q.dedup_until = 'result_ttl'
        AND NOT EXISTS (SELECT FROM leasequeue_job k WHERE k.key = r.key AND k.queue_id = r.queue_id)
), i AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS seq, u.*,
        COALESCE(u.run_at, t.now + u.delay * interval '1 ms') AS available_at
    FROM t, ROWS FROM (
        unnest(%(numbers)s::int[]),
        unnest(%(keys)s::text[]), unnest(%(names)s::text[]), unnest(%(tags)s::text[]),
        unnest(%(priorities)s::int[]), unnest(%(datas)s::text[]), unnest(%(metas)s::text[]),
        unnest(%(bodies)s::bytea[]), unnest(%(run_at)s::timestamptz[]), unnest(%(delays)s::bigint[]),
        unnest(%(ttls)s::bigint[]), unnest(%(reply_to)s::text[]), unnest(%(result_ttls)s::bigint[]),
        unnest(%(max_deliveries)s::int[]), unnest(%(origins)s::text[])
    ) AS u(n, key, name, tag, priority, data, meta, body, run_at, delay, ttl, reply_to, result_ttl, max_deliveries, origin)
), new AS (
    INSERT INTO leasequeue_job (seq, queue_id, position, rank, state, available_at, expires_at, created_at, deliveries,
        key, name, tag, data, meta, body, reply_to, result_ttl_ms, max_deliveries, origin)
    SELECT i.seq, q.id, i.seq,
        CASE q.priority_order WHEN 'none' THEN 0 WHEN 'asc' THEN 1 ELSE -1 END
            * LEAST(GREATEST(COALESCE(i.priority, 0), q.priority_min), q.priority_max),
        CASE WHEN q.type = 'log' THEN 4 WHEN i.available_at > t.now THEN 1 ELSE 0 END,
        CASE WHEN i.available_at > t.now THEN i.available_at END,
        CASE WHEN COALESCE(i.ttl, q.ttl_ms) > 0 THEN t.now + COALESCE(i.ttl, q.ttl_ms) * interval '1 ms' END,
        t.now, 0, i.key, i.name, i.tag, i.data::jsonb, i.meta::jsonb, i.body, i.reply_to, i.result_ttl,
        i.max_deliveries, COALESCE(i.origin, %(origin)s::text)
    FROM i, q, t
    WHERE (i.key IS NULL OR NOT EXISTS (SELECT FROM there WHERE there.key = i.key))
        AND (%(locked)s::bool OR GREATEST(q.cap_records, q.cap_bytes) = 0)
    ORDER BY i.key, i.n
    ON CONFLICT (key, queue_id) WHERE key IS NOT NULL DO NOTHING
    RETURNING seq, queue_id, rank, state, name, created_at
), floors AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value)
    SELECT DISTINCT n.queue_id, 0, n.rank, 0 FROM new n
    WHERE n.state <> 4 AND NOT EXISTS (
        SELECT FROM leasequeue_queuefloor f WHERE f.queue_id = n.queue_id AND f.kind = 0 AND f.rank = n.rank)
    ORDER BY n.rank
    ON CONFLICT DO NOTHING
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, enqueued_at, name)
    SELECT t.txid, t.now, n.queue_id, n.seq, 1, t.now, n.name FROM new n, t, q WHERE q.log_enqueued AND n.state <> 4
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, q.id::int)
        THEN pg_advisory_unlock(1280657731, q.id::int)::text
        ELSE pg_notify('leasequeue', 'q' || q.id)::text END AS sent
    FROM q WHERE EXISTS (SELECT FROM new WHERE state IN (0, 4))
)
SELECT n.seq, n.state, t.now, e.seq, e.state, e.over, (SELECT sent FROM wake),
    (SELECT q.id FROM q WHERE NOT %(locked)s::bool AND GREATEST(q.cap_records, q.cap_bytes) > 0)
FROM t, i LEFT JOIN new n ON n.seq = i.seq LEFT JOIN there e ON e.key = i.key ORDER BY i.n
