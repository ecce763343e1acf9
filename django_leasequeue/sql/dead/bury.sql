-- Purpose: ready jobs that used up their deliveries become dead in their own queue (exhaust_at = claim; dead_letter = self, or null
--   where the job has a limit of its own).
-- Parameters: queue (id), seqs (at most 1,000), now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_attempt_job, leasequeue_deadletter_pkey. A job that somebody
--   else has locked is passed over.
-- Pages: 20 + 16 a row
-- Returns: seq, key, name, deliveries; waiting callers are notified.
WITH q AS MATERIALIZED (
    SELECT *, {now()} AS now
    FROM leasequeue_queue WHERE id = %(queue)s AND COALESCE(dead_letter, 'self') = 'self' AND exhaust_at = 'claim'
), d AS MATERIALIZED (
    SELECT j.seq, j.key, j.name, j.reply_to, j.result_ttl_ms, r.place, r.deliveries, r.flags
    FROM q CROSS JOIN unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
    CROSS JOIN (VALUES (2::smallint), (1::smallint)) AS v(lane)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS place, r.deliveries, r.flags FROM leasequeue_ready r
        WHERE r.queue_id = q.id AND r.rank = j.rank AND r.lane = v.lane AND r.position = COALESCE(j.position, j.seq)
            AND r.seq = j.seq
            AND COALESCE(r.max_deliveries, CASE WHEN q.dead_letter = 'self' THEN q.max_deliveries END) BETWEEN 1 AND r.deliveries
        LIMIT 1 FOR UPDATE SKIP LOCKED) r
), x AS MATERIALIZED (
    SELECT d.*, q.id AS queue_id, q.now, a.message AS error, COALESCE(a.error_type, 'MAX_ATTEMPTS') AS error_type,
        COALESCE(a.fingerprint, '') AS fingerprint,
        CASE WHEN q.dead_ttl_ms > 0 THEN q.now + COALESCE(d.result_ttl_ms, q.dead_ttl_ms) * interval '1 ms' END AS expires_at
    FROM q, d LEFT JOIN LATERAL (
        SELECT * FROM leasequeue_attempt a WHERE a.seq = d.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM x))
), turns AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT %(queue)s, 'epoch', 2, array_agg(x.seq) FROM x WHERE x.flags & 128 <> 0 HAVING count(*) > 0
), dead_letters AS (
    INSERT INTO leasequeue_deadletter AS l (seq, queue_id, dead_at, expires_at, deliveries, in_place, error_type, error, fingerprint)
    SELECT x.seq, x.queue_id, x.now, x.expires_at, x.deliveries, true, x.error_type, x.error, x.fingerprint FROM x
    {dead_again()}
), counted AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + (SELECT count(*) FROM x)
    WHERE q.id = %(queue)s AND EXISTS (SELECT FROM x)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, deliveries, detail)
    SELECT pg_current_xact_id()::text::bigint, max(x.now), x.queue_id, min(x.seq), max(x.seq), 8, x.name,
        array_agg(x.seq ORDER BY x.seq), array_agg(x.deliveries ORDER BY x.seq),
        jsonb_build_object('error_type', x.error_type, 'fingerprint', x.fingerprint)
    FROM x GROUP BY x.queue_id, x.name, x.error_type, x.fingerprint
)
SELECT seq, key, name, deliveries,
    CASE WHEN reply_to IS NOT NULL THEN (SELECT string_agg(pg_notify(c, seq || ':2:' || COALESCE(key, ''))::text, '')
        FROM string_to_table(reply_to, ' ') c) END
FROM x
