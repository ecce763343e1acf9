-- Purpose: make a queue (or log) with its options, its first rank and its state; an existing one is left alone.
-- Parameters: project, name, config (json object with every option), now.
-- Index: leasequeue_queue_name.
-- Pages: 60
-- Returns: the id of the new queue; nothing if it was there. Workers that take all queues are told of it.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), new AS (
    INSERT INTO leasequeue_queue (project, name, dead_lettered, created_at, updated_at,
        type, requeue, priority_order, priority_min, priority_max, lease_ms, late_ack, leases_durable,
        claim_jitter_ms, concurrency, max_deliveries, exhaust_at, dead_letter, dead_ttl_ms, backoff, backoff_base_ms,
        backoff_max_ms, result_ttl_ms, dedup_until, ttl_ms, cap_records, cap_bytes, discard, durability,
        idempotency_window_ms, log_enqueued, serializer, metadata)
    SELECT %(project)s, %(name)s, 0, t.now, t.now, o.* FROM t, jsonb_to_record(%(config)s::jsonb) AS o(
        type text, requeue text, priority_order text, priority_min smallint, priority_max smallint, lease_ms int,
        late_ack text, leases_durable bool, claim_jitter_ms int, concurrency int, max_deliveries int, exhaust_at text,
        dead_letter text, dead_ttl_ms bigint, backoff text, backoff_base_ms int, backoff_max_ms int,
        result_ttl_ms bigint, dedup_until text, ttl_ms bigint, cap_records bigint, cap_bytes bigint, discard text,
        durability text, idempotency_window_ms int, log_enqueued bool, serializer text, metadata jsonb)
    ON CONFLICT (project, name) DO NOTHING
    RETURNING id, type
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT id, 0 FROM new WHERE type = 'queue'
), states AS (
    INSERT INTO leasequeue_topicstate (queue_id) SELECT id FROM new
)
SELECT id, pg_notify('leasequeue', 'n')::text FROM new
