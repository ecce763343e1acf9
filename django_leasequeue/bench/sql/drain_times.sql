-- Purpose: when jobs of one queue were done, by the lease log.
-- Parameters: queue (id), since (the queue's own time: the log's index keeps to what is newer), shares (0..1).
-- Index: leasequeue_event_occurred.
-- Returns: jobs done, time of the last, times at which the shares were done; epoch seconds.
SELECT count(*), extract(epoch FROM max(occurred_at))::float8,
    percentile_disc(%(shares)s::float8[]) WITHIN GROUP (ORDER BY extract(epoch FROM occurred_at)::float8)
FROM leasequeue_leaseevent
WHERE occurred_at >= %(since)s::timestamptz AND queue_id = %(queue)s::bigint AND kind = 5
