-- Purpose: ready jobs at the head of the queues that used up their deliveries (exhaust_at = claim).
-- Parameters: queues (ids), size, tags (array, each once; null: any; the claim's, so that what stands in its way is
--   found).
-- Index: leasequeue_rank_place; leasequeue_ready_pkey, the fresh lane from the floor on, or leasequeue_ready_tag; reads
--   at most size rows of each rank and lane or tag, gives at most size of a queue.
-- Pages: 20 + 1.4 a row
-- Returns: queue id, project, where they go (self: they stay, as dead), array of seqs.
SELECT q.id, q.project, COALESCE(q.dead_letter, 'self'), array_agg(used_up.seq ORDER BY used_up.seq)
FROM leasequeue_queue q CROSS JOIN LATERAL (
    SELECT r.seq FROM (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id) k
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT r.seq, r.deliveries, r.max_deliveries FROM leasequeue_ready r
            WHERE %(tags)s::text[] IS NULL AND r.queue_id = q.id AND r.rank = k.rank AND r.lane = {AGAIN}
            ORDER BY r.position LIMIT %(size)s::int) a
        UNION ALL
        SELECT * FROM (
            SELECT r.seq, r.deliveries, r.max_deliveries FROM leasequeue_ready r
            WHERE %(tags)s::text[] IS NULL AND r.queue_id = q.id AND r.rank = k.rank AND r.lane = {FRESH}
                AND r.position >= {floor(q.id, {floor.READY}, k.rank)}
            ORDER BY r.position LIMIT %(size)s::int) b
        UNION ALL
        SELECT c.* FROM unnest(%(tags)s::text[]) AS w(tag) CROSS JOIN LATERAL (
            SELECT r.seq, r.deliveries, r.max_deliveries FROM leasequeue_ready r
            WHERE r.queue_id = q.id AND r.tag = w.tag AND r.rank = k.rank
            ORDER BY r.position LIMIT %(size)s::int) c) r
    WHERE COALESCE(r.max_deliveries, CASE
        WHEN q.dead_letter IS NOT NULL THEN q.max_deliveries END) BETWEEN 1 AND r.deliveries
    LIMIT %(size)s::int) used_up
WHERE q.id = ANY (%(queues)s::bigint[]) AND q.exhaust_at = 'claim'
GROUP BY q.id
