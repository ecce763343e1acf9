-- Purpose: the jobs of a bulk enqueue, in COPY's text format.
-- Index: inserts only.
COPY leasequeue_job (seq, queue_id, created_at, rank, generated, key, name, data, expires_at, tag, meta, body, reply_to,
    result_ttl_ms,
    max_deliveries, origin) FROM STDIN
