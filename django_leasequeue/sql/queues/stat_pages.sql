-- Purpose: jobs of every queue by state: leased ones are counted, the others estimated from about as many pages of each of
--   their tables as are given (exact while a table has no more), whatever the number of jobs. What is due or over counts as
--   ready, as in queue_counts.
-- Parameters: pages, now.
-- Index: none (samples of pages; the claims, a row for each claim call).
-- Pages: whole tables of claims and queues; of the others the sample that is asked for.
-- Returns: queue id, whether the queue is there, ready, delayed, leased, dead, records.
WITH t AS MATERIALIZED (SELECT {now()} AS now), p AS MATERIALIZED (
    SELECT r.kind, LEAST(100, 100.0 * %(pages)s::int * current_setting('block_size')::int
        / GREATEST(pg_relation_size(r.name::regclass), 1))::real AS percent
    FROM (VALUES (0, 'leasequeue_ready'), (1, 'leasequeue_delayed'), (3, 'leasequeue_deadletter'), (4, 'leasequeue_record'))
        AS r(kind, name)
), s AS MATERIALIZED (
    SELECT r.queue_id, 0 AS kind, count(*) AS n, 0 AS over
    FROM leasequeue_ready r TABLESAMPLE SYSTEM ((SELECT percent FROM p WHERE kind = 0)), t
    WHERE r.expires_at IS NULL OR r.expires_at > t.now GROUP BY r.queue_id
    UNION ALL
    SELECT d.queue_id, 1, count(*) FILTER (WHERE d.available_at > t.now AND d.available_at < '9001-01-01 00:00+00'), count(*) FILTER (WHERE d.available_at <= t.now)
    FROM leasequeue_delayed d TABLESAMPLE SYSTEM ((SELECT percent FROM p WHERE kind = 1)), t GROUP BY d.queue_id
    UNION ALL
    SELECT c.queue_id, 2, COALESCE(sum(cardinality(c.seqs)) FILTER (WHERE c.deadline >= t.now), 0),
        COALESCE(sum(cardinality(c.seqs)) FILTER (WHERE c.deadline < t.now), 0)
    FROM leasequeue_claim c, t GROUP BY c.queue_id
    UNION ALL
    SELECT l.queue_id, 3, count(*), 0
    FROM leasequeue_deadletter l TABLESAMPLE SYSTEM ((SELECT percent FROM p WHERE kind = 3))
    WHERE l.in_place GROUP BY l.queue_id
    UNION ALL
    SELECT o.queue_id, 4, count(*), 0
    FROM leasequeue_record o TABLESAMPLE SYSTEM ((SELECT percent FROM p WHERE kind = 4)) GROUP BY o.queue_id
), e AS MATERIALIZED (
    SELECT s.queue_id, s.kind, s.n * f.factor AS n, s.over * f.factor AS over
    FROM s LEFT JOIN p ON p.kind = s.kind, LATERAL (SELECT COALESCE(100 / p.percent, 1) AS factor) f
)
SELECT e.queue_id, EXISTS (SELECT FROM leasequeue_queue q WHERE q.id = e.queue_id),
    COALESCE(sum(CASE WHEN e.kind = 0 THEN e.n ELSE e.over END), 0)::bigint,
    COALESCE(sum(e.n) FILTER (WHERE e.kind = 1), 0)::bigint, COALESCE(sum(e.n) FILTER (WHERE e.kind = 2), 0)::bigint,
    COALESCE(sum(e.n) FILTER (WHERE e.kind = 3), 0)::bigint, COALESCE(sum(e.n) FILTER (WHERE e.kind = 4), 0)::bigint
FROM e GROUP BY e.queue_id
