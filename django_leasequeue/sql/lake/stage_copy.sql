-- Purpose: the rows of one task on their way into queues, in COPY's text format.
-- Index: inserts only.
COPY leasequeue_lakestage (part, queue, key, name, tag, priority, data, body, meta, run_at, ttl_ms, result_ttl_ms,
    max_deliveries, reply_to, source_seq) FROM STDIN
