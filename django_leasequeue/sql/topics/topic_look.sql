-- Purpose: the options and state of a topic for a call.
-- Parameters: project, topic (name).
-- Index: leasequeue_queue_name.
-- Pages: 30
SELECT id, type, durability, claim_jitter_ms, idempotency_window_ms,
    exhaust_at = 'claim' AND dead_letter IS NOT NULL AS moves, priority_order, priority_min, priority_max, result_ttl_ms
FROM leasequeue_queue WHERE project = %(project)s AND name = %(topic)s
