-- Purpose: ready jobs at the head of the queues that used up their deliveries (exhaust_at = claim).
-- Parameters: queues (ids), size, tag (null: any; the claim's, so that what stands in its way is found).
-- Index: leasequeue_job_ready from the floor on; reads at most size rows of each rank.
-- Returns: queue id, project, dead_letter, array of seqs.
SELECT q.id, q.project, q.dead_letter, array_agg(j.seq ORDER BY j.seq)
FROM leasequeue_queue q JOIN leasequeue_queuefloor f ON f.queue_id = q.id AND f.kind = 0
CROSS JOIN LATERAL (
    SELECT j.seq, j.deliveries, j.max_deliveries FROM leasequeue_job j
    WHERE j.queue_id = q.id AND j.rank = f.rank AND j.state = 0 AND j.position >= f.value
        AND (%(tag)s::text IS NULL OR j.tag = %(tag)s::text)
    ORDER BY j.position LIMIT %(size)s::int) j
WHERE q.id = ANY (%(queues)s::bigint[]) AND q.exhaust_at = 'claim' AND q.dead_letter IS NOT NULL
    AND COALESCE(j.max_deliveries, q.max_deliveries) BETWEEN 1 AND j.deliveries
GROUP BY q.id
