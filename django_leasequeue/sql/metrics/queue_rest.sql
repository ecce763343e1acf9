-- Purpose: the sum of the newest samples of all further queues.
-- Parameters: after (queue id, exclusive).
-- Index: leasequeue_queue_pkey; leasequeue_stat_sample, compared and ordered by both its columns, as no other index
--   can.
-- Pages: 20 + 5 a row
SELECT count(*) AS queues, COALESCE(sum(s.ready), 0)::bigint AS ready, COALESCE(sum(s.delayed), 0)::bigint AS delayed,
    COALESCE(sum(s.leased), 0)::bigint AS in_flight, COALESCE(sum(s.dead), 0)::bigint AS dead,
    COALESCE(sum(s.records), 0)::bigint AS records, COALESCE(sum(q.dead_lettered), 0)::bigint AS dead_lettered
FROM leasequeue_queue q LEFT JOIN LATERAL (
    SELECT * FROM leasequeue_queuestat s WHERE (s.queue_id, s.sampled_at) <= (q.id, 'infinity')
    ORDER BY s.queue_id DESC, s.sampled_at DESC LIMIT 1) s ON s.queue_id = q.id
WHERE q.id > %(after)s::bigint
