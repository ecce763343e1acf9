-- Purpose: complete one job, of a claim with nothing unusual but callers who wait: finish.sql for the case that is asked for one by
--   one. Who waits is told as there.
-- Parameters: project, queue (null: any), node, token, seq, result, ran (ms; null: not known), now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_job_pkey, leasequeue_floor_place; inserts.
-- Pages: 80
-- Returns: the seq if it was ended; no row: finish.sql knows more.
WITH k AS MATERIALIZED (
    SELECT c.token, c.part, c.queue_id, c.created_at, c.connection, c.flags, c.name, c.seqs, c.deliveries, n.now,
        CASE WHEN %(autocommit)s::bool AND c.flags & 128 <> 0 THEN set_config('leasequeue.alone', 'ended', true) END,
        q.result_ttl_ms, array_position(c.seqs, %(seq)s::bigint) AS at,
        {lazily(q.durability <> 'fsync')} FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    CROSS JOIN LATERAL (SELECT {now()} AS now OFFSET 0) n
    WHERE c.token = %(token)s::bigint AND (c.node = %(node)s::text) IS TRUE AND %(seq)s::bigint = ANY (c.seqs) AND c.flags & 126 = 0
        AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (q.late_ack = 'accept' OR c.deadline >= n.now)
    FOR NO KEY UPDATE OF c
), j AS MATERIALIZED (
    -- A caller that joined while this waited for the claim changed the job as well: read it as it is then.
    SELECT reply_to, key, created_at FROM leasequeue_job
    WHERE seq = ANY (ARRAY(SELECT %(seq)s::bigint FROM k WHERE flags & 1 <> 0)) FOR NO KEY UPDATE
), d AS MATERIALIZED (
    SELECT k.*, j.reply_to, j.key, j.created_at AS enqueued_at,
        COALESCE(NULLIF(k.result_ttl_ms, 0), CASE WHEN j.reply_to IS NOT NULL THEN 60000 ELSE 0 END) AS keep
    FROM k LEFT JOIN j ON true
), gone AS (
    DELETE FROM leasequeue_claim c USING k WHERE c.token = %(token)s::bigint AND c.part = k.part AND cardinality(k.seqs) = 1
), rest AS (
    UPDATE leasequeue_claim c SET seqs = k.seqs[:k.at - 1] || k.seqs[k.at + 1:],
        deliveries = k.deliveries[:k.at - 1] || k.deliveries[k.at + 1:]
    FROM k WHERE c.token = %(token)s::bigint AND c.part = k.part AND cardinality(k.seqs) > 1
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state, node, result)
    SELECT %(seq)s::bigint, d.queue_id, d.token, d.created_at, d.now, d.now + d.keep * interval '1 ms',
        COALESCE(d.deliveries[d.at], 1), 1, %(node)s::text, %(result)s::text::json
    FROM d WHERE d.keep > 0
), dropped AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT %(seq)s::bigint FROM d WHERE d.keep = 0)) AND {removing()}
), head AS (
    {note_highest(SELECT d.queue_id, d.now, %(seq)s::bigint AS high FROM d WHERE d.keep = 0)}
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs, deliveries, ran)
    SELECT pg_current_xact_id()::text::bigint, d.now, d.queue_id, d.token, %(seq)s::bigint, %(seq)s::bigint, 5,
        %(node)s::text, d.name, ARRAY[%(seq)s::bigint], CASE WHEN d.deliveries IS NOT NULL THEN d.deliveries[d.at:d.at] END,
        CASE WHEN %(ran)s::int IS NOT NULL THEN ARRAY[%(ran)s::int] END
    FROM d
)
SELECT %(seq)s::bigint, CASE WHEN d.connection IS NOT NULL
        THEN pg_notify(split_part(d.connection, ':', 1), split_part(d.connection, ':', 2))::text END,
    CASE WHEN d.reply_to IS NOT NULL
        THEN (SELECT string_agg(pg_notify(c, %(seq)s::bigint || CASE WHEN starts_with(c, 'leasequeue_reply_')
                    AND octet_length(COALESCE(%(result)s::text, '')) <= 1000
                THEN ':0:' || (extract(epoch FROM d.enqueued_at) * 1000000)::bigint || ':' || COALESCE(%(result)s::text, '')
                ELSE ':1:' || COALESCE(d.key, '') END)::text, '')
            FROM string_to_table(d.reply_to, ' ') c) END
FROM d
