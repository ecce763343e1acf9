-- into_delayed(): the beginning of an insert of delayed jobs.
INSERT INTO leasequeue_delayed (seq, queue_id, available_at, deliveries, rank, flags, max_deliveries, expires_at, tag)
