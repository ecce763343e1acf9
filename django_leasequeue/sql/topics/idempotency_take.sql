-- Purpose: take a write's idempotency key, or find it taken; waits for a concurrent holder. Some keys whose window
--   is over are removed on the way.
-- Parameters: queue (id), key, window_ms, now.
-- Index: leasequeue_idempotency_key, leasequeue_idempotency_expires.
-- Pages: 40
-- Returns: one row if the key is ours now; nothing if a write with it was done within the window.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), over AS MATERIALIZED (
    SELECT k.id FROM leasequeue_idempotencykey k
    WHERE k.expires_at <= (SELECT now FROM clock) AND NOT (k.queue_id = %(queue)s::bigint AND k.key = %(key)s::text)
    ORDER BY k.expires_at LIMIT 20 FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM leasequeue_idempotencykey WHERE id = ANY (ARRAY(SELECT id FROM over))
)
INSERT INTO leasequeue_idempotencykey AS k (queue_id, key, seqs, created_at, expires_at)
SELECT %(queue)s::bigint, %(key)s::text, '{}', now, now + %(window_ms)s::bigint * interval '1 ms' FROM clock
ON CONFLICT (queue_id, key) DO UPDATE
SET seqs = '{}', created_at = excluded.created_at, expires_at = excluded.expires_at
WHERE k.expires_at <= excluded.created_at
RETURNING k.id
