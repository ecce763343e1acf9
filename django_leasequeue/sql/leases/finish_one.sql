-- Purpose: complete one job of a claim without unusual flags, except waiting callers: finish.sql for the case that is
--   asked for one by one. Who waits is told as there.
-- Parameters: project, queue (null: any), node, token, seq, result, ran (ms; null: not known), now, autocommit, alone.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_job_pkey, leasequeue_floor_place; inserts.
-- Pages: 110
-- Returns: the seq if it was ended; no row: finish.sql knows more.
WITH claim AS MATERIALIZED (
    SELECT c.token, c.part, c.queue_id, c.created_at, c.connection, c.flags, c.name, c.seqs, c.deliveries, n.now,
        q.result_ttl_ms, array_position(c.seqs, %(seq)s::bigint) AS at,
        {lazily(q.durability <> 'fsync')} FROM leasequeue_claim c
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    CROSS JOIN LATERAL (SELECT {now()} AS now OFFSET 0) n
    WHERE c.token = %(token)s::bigint AND %(seq)s::bigint = ANY (c.seqs) AND c.flags & {UNUSUAL} = 0
        AND {may_settle(n.now)}
    FOR NO KEY UPDATE OF c
), job AS MATERIALIZED (
    -- A caller that joined while this waited for the claim changed the job as well: read it as it is then.
    SELECT reply_to, key, created_at FROM leasequeue_job
    WHERE seq = ANY (ARRAY(SELECT %(seq)s::bigint FROM claim WHERE flags & {REPLY} <> 0)) FOR NO KEY UPDATE
), done AS MATERIALIZED (
    SELECT claim.*, job.reply_to, job.key, job.created_at AS enqueued_at,
        COALESCE(NULLIF(claim.result_ttl_ms, 0), CASE WHEN job.reply_to IS NOT NULL THEN 60000 ELSE 0 END) AS keep
    FROM claim LEFT JOIN job ON true
), gone AS (
    DELETE FROM leasequeue_claim c USING claim WHERE c.token = %(token)s::bigint AND c.part = claim.part
        AND cardinality(claim.seqs) = 1
), rest AS (
    UPDATE leasequeue_claim c SET seqs = claim.seqs[:claim.at - 1] || claim.seqs[claim.at + 1:],
        deliveries = claim.deliveries[:claim.at - 1] || claim.deliveries[claim.at + 1:]
    FROM claim WHERE c.token = %(token)s::bigint AND c.part = claim.part AND cardinality(claim.seqs) > 1
), kept AS (
    INSERT INTO leasequeue_jobresult (seq, queue_id, claim, claimed_at, finished_at, expires_at, deliveries, state,
        node, result)
    SELECT %(seq)s::bigint, queue_id, token, created_at, now, now + keep * interval '1 ms',
        COALESCE(deliveries[at], 1), {result.COMPLETED}, %(node)s::text, %(result)s::text::json
    FROM done WHERE keep > 0
), dropped AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT %(seq)s::bigint FROM done WHERE keep = 0)) AND {removing()}
), head AS (
    {note_highest(SELECT done.queue_id, done.now, %(seq)s::bigint AS high FROM done WHERE done.keep = 0)}
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs,
        deliveries, ran)
    SELECT {txid()}, now, queue_id, token, %(seq)s::bigint, %(seq)s::bigint, {event.ACKED},
        %(node)s::text, name, ARRAY[%(seq)s::bigint], CASE WHEN deliveries IS NOT NULL THEN deliveries[at:at] END,
        CASE WHEN %(ran)s::int IS NOT NULL THEN ARRAY[%(ran)s::int] END
    FROM done
)
SELECT %(seq)s::bigint, CASE WHEN done.connection IS NOT NULL
        THEN pg_notify(split_part(done.connection, ':', 1), split_part(done.connection, ':', 2))::text END,
    CASE WHEN done.reply_to IS NOT NULL
        THEN (SELECT string_agg(pg_notify(c, %(seq)s::bigint || CASE WHEN starts_with(c, 'leasequeue_reply_')
                    AND octet_length(COALESCE(%(result)s::text, '')) <= 1000
                THEN ':0:' || (extract(epoch FROM done.enqueued_at) * 1000000)::bigint || ':'
                    || COALESCE(%(result)s::text, '')
                ELSE ':{result.COMPLETED}:' || COALESCE(done.key, '') END)::text, '')
            FROM string_to_table(done.reply_to, ' ') c) END
FROM done
