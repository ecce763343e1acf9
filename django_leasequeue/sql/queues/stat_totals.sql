-- Purpose: figures of whole projects, from the newest sample of each of their queues: no job is read.
-- Parameters: project (null: each project), after (project, exclusive; null: from the start), size.
-- Index: leasequeue_queue_name, leasequeue_stat_sample.
-- Pages: 20 + 0.9 a row
SELECT q.project, count(*) AS queues, COALESCE(sum(s.ready), 0)::bigint AS ready,
    COALESCE(sum(s.delayed), 0)::bigint AS delayed, COALESCE(sum(s.leased), 0)::bigint AS in_flight,
    COALESCE(sum(s.dead), 0)::bigint AS dead, COALESCE(sum(s.records), 0)::bigint AS records,
    sum(q.dead_lettered)::bigint AS dead_lettered,
    CASE WHEN bool_and(s.id IS NOT NULL) THEN max(s.sampled_at) END AS sampled_at
FROM leasequeue_queue q LEFT JOIN LATERAL (
    SELECT * FROM leasequeue_queuestat s WHERE (s.queue_id, s.sampled_at) <= (q.id, 'infinity')
    ORDER BY s.queue_id DESC, s.sampled_at DESC LIMIT 1) s ON s.queue_id = q.id
WHERE (%(project)s::text IS NULL OR q.project = %(project)s::text)
    AND (%(after)s::text IS NULL OR q.project > %(after)s::text)
GROUP BY q.project ORDER BY q.project LIMIT %(size)s::int
