-- Purpose: ask a worker to stop: it reads this when it next writes its row.
-- Parameters: id, now.
-- Index: leasequeue_worker_pkey.
-- Pages: 40
UPDATE leasequeue_worker w SET stop_requested_at = COALESCE(w.stop_requested_at, %(now)s::timestamptz,
    clock_timestamp())
FROM (SELECT id, stop_requested_at FROM leasequeue_worker WHERE id = %(id)s::bigint FOR UPDATE) o
WHERE w.id = o.id AND w.id = %(id)s::bigint
RETURNING w.node, o.stop_requested_at IS NOT NULL
