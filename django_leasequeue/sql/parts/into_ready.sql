-- into_ready(): the beginning of an insert of ready jobs.
INSERT INTO leasequeue_ready (queue_id, rank, lane, position, seq, deliveries, flags, ready_at, max_deliveries,
    expires_at, tag)
