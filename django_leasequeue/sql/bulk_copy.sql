-- Purpose: the rows of a bulk enqueue, in COPY's text format.
-- Index: inserts only.
COPY leasequeue_job (seq, queue_id, position, rank, state, available_at, expires_at, created_at, deliveries, key, name,
    tag, data, meta, body, reply_to, result_ttl_ms, max_deliveries, origin) FROM STDIN
