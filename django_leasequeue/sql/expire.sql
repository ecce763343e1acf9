-- Purpose: remove messages past their TTL, records past theirs, and dead jobs past their retention; a live lease protects.
-- Parameters: queues (ids), size (rows per queue), now.
-- Index: leasequeue_job_expires, leasequeue_job_pkey, leasequeue_topicstate_pkey. Readers that come too late are told.
--   A queue whose state another transaction holds is passed over: nobody waits.
-- Returns: seq, queue id, state before, key, reply_to sent or not.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), due AS MATERIALIZED (
    SELECT q.id FROM unnest(%(queues)s::bigint[]) AS q(id) WHERE EXISTS (
        SELECT FROM leasequeue_job j
        WHERE j.queue_id = q.id AND j.expires_at IS NOT NULL AND NOT j.state = 2 AND j.expires_at <= (SELECT now FROM t)
        ORDER BY j.expires_at LIMIT 1)
), mine AS MATERIALIZED (
    SELECT s.queue_id FROM leasequeue_topicstate s WHERE s.queue_id = ANY (ARRAY(SELECT id FROM due))
    FOR NO KEY UPDATE SKIP LOCKED
), q AS MATERIALIZED (
    SELECT id FROM due WHERE id = ANY (ARRAY(SELECT queue_id FROM mine))
        OR NOT EXISTS (SELECT FROM leasequeue_topicstate s WHERE s.queue_id = due.id)
), d AS MATERIALIZED (
    SELECT d.* FROM q CROSS JOIN LATERAL (
        SELECT j.seq FROM leasequeue_job j
        WHERE j.queue_id = q.id AND j.expires_at IS NOT NULL AND NOT j.state = 2 AND j.expires_at <= (SELECT now FROM t)
        ORDER BY j.expires_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) d
), gone AS (
    DELETE FROM leasequeue_job j USING t WHERE j.seq = ANY (ARRAY(SELECT seq FROM d))
    RETURNING j.seq, j.queue_id, j.state, j.key, j.reply_to, j.created_at, j.name, j.deliveries, t.now
), remembered AS (
    INSERT INTO leasequeue_topicstate AS s (queue_id, head_seq, last_write_at, gap_from, gap_to, gap_count, gap_reason)
    SELECT queue_id, max(seq), max(created_at), min(seq), max(seq), count(*), 'ttl'
    FROM gone WHERE state <> 3 GROUP BY queue_id ORDER BY queue_id
    ON CONFLICT (queue_id) DO UPDATE SET head_seq = GREATEST(s.head_seq, excluded.head_seq),
        last_write_at = GREATEST(s.last_write_at, excluded.last_write_at), records = NULL, bytes = NULL,
        gap_from = LEAST(s.gap_from, excluded.gap_from), gap_to = GREATEST(s.gap_to, excluded.gap_to),
        gap_count = s.gap_count + excluded.gap_count, gap_reason = excluded.gap_reason
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, deliveries, enqueued_at, name, detail)
    SELECT pg_current_xact_id()::text::bigint, g.now, g.queue_id, g.seq, 10, g.deliveries, g.created_at, g.name,
        '{"reason": "ttl"}'::jsonb
    FROM gone g WHERE g.state <> 4
)
SELECT seq, queue_id, state, key,
    CASE WHEN reply_to IS NOT NULL AND state <> 3
        THEN (SELECT string_agg(pg_notify(c, seq || ':3:' || COALESCE(key, ''))::text, '')
            FROM string_to_table(reply_to, ' ') c) END
FROM gone
