-- Purpose: jobs of every queue by state, estimated from at most about 2,000 pages of the job table (exact while it has no
--   more), whatever the number of jobs. What is due or over counts as ready, as in queue_counts.
-- Parameters: pages, now.
-- Index: none (a sample of pages).
-- Returns: queue id, whether the queue is there, ready, delayed, leased, dead, records.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, LEAST(100, 100.0 * %(pages)s::int
        * current_setting('block_size')::int
        / GREATEST(pg_relation_size('leasequeue_job'::regclass), 1))::real AS percent
), s AS MATERIALIZED (
    SELECT j.queue_id,
        count(*) FILTER (WHERE (j.state = 0 AND (j.expires_at IS NULL OR j.expires_at > t.now))
            OR (j.state = 1 AND j.available_at <= t.now) OR (j.state = 2 AND j.deadline < t.now)) AS ready,
        count(*) FILTER (WHERE j.state = 1 AND j.available_at > t.now) AS delayed,
        count(*) FILTER (WHERE j.state = 2 AND j.deadline >= t.now) AS leased,
        count(*) FILTER (WHERE j.state = 3) AS dead,
        count(*) FILTER (WHERE j.state = 4) AS records
    FROM leasequeue_job j TABLESAMPLE SYSTEM (LEAST(100, 100.0 * %(pages)s::int
        * current_setting('block_size')::int
        / GREATEST(pg_relation_size('leasequeue_job'::regclass), 1))::real), t
    GROUP BY j.queue_id
)
SELECT s.queue_id, q.id IS NOT NULL, (s.ready * 100 / t.percent)::bigint, (s.delayed * 100 / t.percent)::bigint,
    (s.leased * 100 / t.percent)::bigint, (s.dead * 100 / t.percent)::bigint, (s.records * 100 / t.percent)::bigint
FROM s LEFT JOIN leasequeue_queue q ON q.id = s.queue_id, t
