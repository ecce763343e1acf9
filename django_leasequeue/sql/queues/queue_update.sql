-- Purpose: replace all options of a queue (the type cannot change: a trigger refuses it).
-- Parameters: project, name, config (json object with every option), now.
-- Index: leasequeue_queue_name.
-- Pages: 50
-- Returns: the queue's id; nothing if there is none.
UPDATE leasequeue_queue q SET updated_at = COALESCE(%(now)s::timestamptz, clock_timestamp()), (
        type, requeue, priority_order, priority_min, priority_max, lease_ms, late_ack, leases_durable,
        claim_jitter_ms, concurrency, max_deliveries, exhaust_at, dead_letter, dead_ttl_ms, backoff, backoff_base_ms,
        backoff_max_ms, result_ttl_ms, dedup_until, ttl_ms, cap_records, cap_bytes, discard, durability,
        idempotency_window_ms, log_enqueued, serializer, metadata) = (
    SELECT * FROM jsonb_to_record(%(config)s::jsonb) AS o(
        type text, requeue text, priority_order text, priority_min smallint, priority_max smallint, lease_ms int,
        late_ack text, leases_durable bool, claim_jitter_ms int, concurrency int, max_deliveries int, exhaust_at text,
        dead_letter text, dead_ttl_ms bigint, backoff text, backoff_base_ms int, backoff_max_ms int,
        result_ttl_ms bigint, dedup_until text, ttl_ms bigint, cap_records bigint, cap_bytes bigint, discard text,
        durability text, idempotency_window_ms int, log_enqueued bool, serializer text, metadata jsonb))
WHERE q.project = %(project)s AND q.name = %(name)s
RETURNING q.id
