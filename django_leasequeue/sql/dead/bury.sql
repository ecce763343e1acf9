-- Purpose: ready jobs that used up their deliveries become dead in their own queue (exhaust_at = claim; dead_letter =
--   self, or null where the job has a limit of its own).
-- Parameters: queue (id), seqs (at most 1,000), now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_attempt_job, leasequeue_deadletter_pkey. A job that
--   somebody else has locked is passed over.
-- Pages: 20 + 16 a row
-- Returns: seq, key, name, deliveries; waiting callers are notified.
WITH queue AS MATERIALIZED (
    SELECT *, {now()} AS now
    FROM leasequeue_queue WHERE id = %(queue)s AND COALESCE(dead_letter, 'self') = 'self' AND exhaust_at = 'claim'
), exhausted AS MATERIALIZED (
    SELECT j.seq, j.key, j.name, j.reply_to, j.result_ttl_ms, r.place, r.deliveries, r.flags
    FROM queue CROSS JOIN unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq OFFSET 0) j
    CROSS JOIN (VALUES ({FRESH}::smallint), ({AGAIN}::smallint)) AS v(lane)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS place, r.deliveries, r.flags FROM leasequeue_ready r
        WHERE r.queue_id = queue.id AND r.rank = j.rank AND r.lane = v.lane AND r.position = COALESCE(j.position, j.seq)
            AND r.seq = j.seq
            AND COALESCE(r.max_deliveries, CASE
                WHEN queue.dead_letter = 'self' THEN queue.max_deliveries END) BETWEEN 1 AND r.deliveries
        LIMIT 1 FOR UPDATE SKIP LOCKED) r
), dying AS MATERIALIZED (
    SELECT exhausted.*, queue.id AS queue_id, queue.now, a.message AS error,
        COALESCE(a.error_type, 'MAX_ATTEMPTS') AS error_type, COALESCE(a.fingerprint, '') AS fingerprint,
        CASE WHEN queue.dead_ttl_ms > 0 THEN queue.now + COALESCE(exhausted.result_ttl_ms,
            queue.dead_ttl_ms) * interval '1 ms' END AS expires_at
    FROM queue, exhausted LEFT JOIN LATERAL (
        SELECT * FROM leasequeue_attempt a WHERE a.seq = exhausted.seq ORDER BY a.id + 0 DESC LIMIT 1) a ON true
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM dying))
), turns AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT %(queue)s, 'epoch', {turn.LOOK}, array_agg(seq) FROM dying WHERE flags & {FLOW} <> 0 HAVING count(*) > 0
), dead_letters AS (
    INSERT INTO leasequeue_deadletter AS l (seq, queue_id, dead_at, expires_at, deliveries, in_place, error_type, error,
        fingerprint)
    SELECT dying.seq, dying.queue_id, dying.now, dying.expires_at, dying.deliveries, true, dying.error_type,
        dying.error, dying.fingerprint FROM dying
    {dead_again()}
), counted AS (
    UPDATE leasequeue_queue q SET dead_lettered = q.dead_lettered + (SELECT count(*) FROM dying)
    WHERE q.id = %(queue)s AND EXISTS (SELECT FROM dying)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, low, high, kind, name, seqs, deliveries, detail)
    SELECT {txid()}, max(now), queue_id, min(seq), max(seq), {event.DEAD_LETTERED}, name,
        array_agg(seq ORDER BY seq), array_agg(deliveries ORDER BY seq),
        jsonb_build_object('error_type', error_type, 'fingerprint', fingerprint)
    FROM dying GROUP BY queue_id, name, error_type, fingerprint
)
SELECT seq, key, name, deliveries,
    CASE WHEN reply_to IS NOT NULL THEN {tell_callers(dying, {result.FAILED})} END
FROM dying
