-- Purpose: what happened to one job, the newest events first.
-- Parameters: seq, size.
-- Index: leasequeue_event_seq (BRIN) of each partition; ordered by transaction, so that no planner walks the primary key.
-- Returns: id, occurred_at, kind, queue id, node, deliveries, claim, deadline, enqueued_at, name, detail.
SELECT id, occurred_at, kind::int, queue_id, node, deliveries, claim, deadline, enqueued_at, name, detail::text
FROM leasequeue_leaseevent
WHERE seq = %(seq)s::bigint
ORDER BY txid DESC, id DESC LIMIT %(size)s::int
