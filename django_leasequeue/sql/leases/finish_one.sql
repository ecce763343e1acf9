-- Purpose: complete one job with nothing unusual about it, of a claim with nothing unusual: finish.sql for the case that is
--   asked for one by one.
-- Parameters: project, queue (null: any), node, token, seq, result, ran (ms; null: not known), now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_floor_place; inserts.
-- Pages: 80
-- Returns: the seq if it was ended; no row: finish.sql knows more.
WITH k AS MATERIALIZED (
    SELECT c.token, c.part, c.queue_id, c.created_at, c.connection, c.name, c.seqs, c.deliveries, n.now,
        CASE WHEN %(autocommit)s::bool AND c.flags & 128 <> 0 THEN set_config('leasequeue.alone', 'on', true) END,
        q.result_ttl_ms AS keep, array_position(c.seqs, %(seq)s::bigint) AS at,
        CASE WHEN %(autocommit)s::bool AND q.durability <> 'fsync' THEN set_config('synchronous_commit', 'off', true)
            WHEN %(autocommit)s::bool AND current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
    FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    CROSS JOIN LATERAL (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now OFFSET 0) n
    WHERE c.token = %(token)s::bigint AND c.node = %(node)s::text AND %(seq)s::bigint = ANY (c.seqs) AND c.flags & 127 = 0
        AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (q.late_ack = 'accept' OR c.deadline >= n.now)
    FOR NO KEY UPDATE OF c
), gone AS (
    DELETE FROM leasequeue_claim c USING k WHERE c.token = %(token)s::bigint AND c.part = k.part AND cardinality(k.seqs) = 1
), rest AS (
    UPDATE leasequeue_claim c SET seqs = k.seqs[:k.at - 1] || k.seqs[k.at + 1:],
        deliveries = k.deliveries[:k.at - 1] || k.deliveries[k.at + 1:]
    FROM k WHERE c.token = %(token)s::bigint AND c.part = k.part AND cardinality(k.seqs) > 1
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state, node, result)
    SELECT %(seq)s::bigint, k.queue_id, k.token, k.created_at, k.now, k.now + k.keep * interval '1 ms',
        COALESCE(k.deliveries[k.at], 1), 1, %(node)s::text, %(result)s::text::json
    FROM k WHERE k.keep > 0
), dropped AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT %(seq)s::bigint FROM k WHERE k.keep = 0))
        AND (SELECT set_config('leasequeue.removes', statement_timestamp()::text, true)) IS NOT NULL
), head AS (
    INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
    SELECT k.queue_id, 3, 0, %(seq)s::bigint, k.now FROM k WHERE k.keep = 0 AND %(seq)s::bigint > COALESCE((
        SELECT f.value FROM leasequeue_queuefloor f WHERE f.queue_id = k.queue_id AND f.kind = 3 AND f.rank = 0
        ORDER BY f.value DESC LIMIT 1), 0)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs, deliveries, ran)
    SELECT pg_current_xact_id()::text::bigint, k.now, k.queue_id, k.token, %(seq)s::bigint, %(seq)s::bigint, 5,
        %(node)s::text, k.name, ARRAY[%(seq)s::bigint], CASE WHEN k.deliveries IS NOT NULL THEN k.deliveries[k.at:k.at] END,
        CASE WHEN %(ran)s::int IS NOT NULL THEN ARRAY[%(ran)s::int] END
    FROM k
)
SELECT %(seq)s::bigint, CASE WHEN k.connection IS NOT NULL
    THEN pg_notify(split_part(k.connection, ':', 1), split_part(k.connection, ':', 2))::text END
FROM k
