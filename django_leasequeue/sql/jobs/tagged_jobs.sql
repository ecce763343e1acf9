-- Purpose: a page of the jobs with some tags, the newest first. It looks at 1,000 jobs with these tags at
--   most; to order them by their number it finds them all.
-- Parameters: tags (JSON: a job has all of them), below (number of the last job of the page before), project, queue
--   (its name; NULL: any), prefixes (of the names of queues; NULL: any), state (NULL: any), size.
-- Index: leasequeue_job_tags, leasequeue_job_pkey, leasequeue_queue_pkey and those of the view leasequeue_jobs.
-- Pages: 60 + 20 a row
-- Returns: number of the last job that it looked at if there may be more (NULL: there are none), then the job; of no
--   job one row of NULLs.
{keeps_host_settings(upkeep/plans.sql has set the planner: GIN needs bitmaps)}
WITH tagged AS MATERIALIZED (
    SELECT t.seq FROM (
        SELECT j.seq FROM leasequeue_job j WHERE leasequeue_tags(j.meta) @> %(tags)s::jsonb OFFSET 0) t
    WHERE t.seq < %(below)s::bigint ORDER BY t.seq DESC LIMIT 1000
), shown AS MATERIALIZED (
    SELECT v.seq, v.key, q.name AS queue, v.task, v.state, v.tag, v.tags::text, v.deliveries, v.enqueued_at,
        v.available_at, v.started_at, v.finished_at, v.worker, v.error_type, left(v.error, 300) AS error
    FROM tagged CROSS JOIN LATERAL (SELECT * FROM leasequeue_jobs v WHERE v.seq = tagged.seq OFFSET 0) v
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_queue q WHERE q.id = v.queue_id OFFSET 0) q
    WHERE q.project = %(project)s::text AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND (%(prefixes)s::text[] IS NULL OR EXISTS (SELECT FROM unnest(%(prefixes)s::text[]) AS p
            WHERE starts_with(q.name, p)))
        AND (%(state)s::text IS NULL OR v.state = %(state)s::text)
    ORDER BY tagged.seq DESC LIMIT %(size)s::int
)
SELECT CASE WHEN n.found = %(size)s::int THEN n.last WHEN n.looked = 1000 THEN n.end END, shown.*
FROM (SELECT (SELECT count(*) FROM tagged) AS looked, (SELECT min(seq) FROM tagged) AS end,
    (SELECT count(*) FROM shown) AS found, (SELECT min(seq) FROM shown) AS last) n
LEFT JOIN shown ON true ORDER BY shown.seq DESC
