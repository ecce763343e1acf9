-- Purpose: the sampled figures of one queue, the newest first.
-- Parameters: queue (id), seconds (how far back), size, now.
-- Index: leasequeue_stat_sample.
-- Pages: 20 + 4 a row
-- Returns: sampled_at, ready, delayed, leased, dead, records, oldest_at.
SELECT s.sampled_at, s.ready, s.delayed, s.leased, s.dead, s.records, s.oldest_at FROM leasequeue_queuestat s
WHERE s.queue_id = %(queue)s::bigint
    AND s.sampled_at >= COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(seconds)s::int * interval '1 s'
ORDER BY s.sampled_at DESC LIMIT %(size)s::int
