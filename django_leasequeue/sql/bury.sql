-- Purpose: ready jobs that used up their deliveries become dead in their own queue (exhaust_at = claim, dead_letter = self).
-- Parameters: queue (id), size, now.
-- Index: leasequeue_job_pkey (the + 0 keeps the planner from reading all that is ready in the queue).
-- Returns: seq, key, name, deliveries.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT * FROM leasequeue_queue WHERE id = %(queue)s AND dead_letter = 'self' AND exhaust_at = 'claim'
), d AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j, q WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.queue_id + 0 = q.id AND j.state = 0
        AND COALESCE(j.max_deliveries, q.max_deliveries) BETWEEN 1 AND j.deliveries
    FOR UPDATE OF j SKIP LOCKED
), r AS (
    UPDATE leasequeue_job j SET state = 3, dead_at = t.now,
        expires_at = CASE WHEN q.dead_ttl_ms > 0
            THEN t.now + COALESCE(j.result_ttl_ms, q.dead_ttl_ms) * interval '1 ms' END,
        error_type = COALESCE(j.error_type, 'MAX_ATTEMPTS'), fingerprint = COALESCE(j.fingerprint, '')
    FROM q, t WHERE j.seq = ANY (ARRAY(SELECT seq FROM d))
    RETURNING j.seq, j.queue_id, j.key, j.name, j.reply_to, j.deliveries, j.created_at, j.error_type, j.fingerprint, t.now
), deadened AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + (SELECT count(*) FROM r)
    WHERE q.id = %(queue)s AND EXISTS (SELECT FROM r)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, deliveries, enqueued_at, name, detail)
    SELECT pg_current_xact_id()::text::bigint, r.now, r.queue_id, r.seq, 8, r.deliveries, r.created_at, r.name,
        jsonb_build_object('error_type', r.error_type, 'fingerprint', r.fingerprint)
    FROM r
)
SELECT seq, key, name, deliveries,
    CASE WHEN reply_to IS NOT NULL THEN (SELECT string_agg(pg_notify(c, seq || ':2:' || COALESCE(key, ''))::text, '')
        FROM string_to_table(reply_to, ' ') c) END
FROM r
