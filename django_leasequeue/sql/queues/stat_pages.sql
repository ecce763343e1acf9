-- Purpose: jobs of every queue by state: leased ones are counted, the others estimated from about as many pages of each
--   of their tables as are given (exact while a table has no more), whatever the number of jobs. What is due or over
--   counts as ready, as in queue_counts.
-- Parameters: pages, now.
-- Index: none (samples of pages; the claims, a row for each claim call).
-- Pages: whole tables of claims and queues; of the others the sample that is asked for.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), samples AS MATERIALIZED (
    SELECT r.kind, LEAST(100, 100.0 * %(pages)s::int * current_setting('block_size')::int
        / GREATEST(pg_relation_size(r.name::regclass), 1))::real AS percent
    FROM (VALUES ({READY}, 'leasequeue_ready'), ({DELAYED}, 'leasequeue_delayed'), ({DEAD}, 'leasequeue_deadletter'),
            ({RECORD}, 'leasequeue_record'))
        AS r(kind, name)
), counted AS MATERIALIZED (
    SELECT r.queue_id, {READY} AS kind, count(*) AS n, 0 AS over
    FROM leasequeue_ready r TABLESAMPLE SYSTEM ((SELECT percent FROM samples WHERE kind = {READY})), clock
    WHERE r.expires_at IS NULL OR r.expires_at > clock.now GROUP BY r.queue_id
    UNION ALL
    SELECT d.queue_id, {DELAYED}, count(*) FILTER (WHERE d.available_at > clock.now
        AND d.available_at < {CUT_OFF}), count(*) FILTER (WHERE d.available_at <= clock.now)
    FROM leasequeue_delayed d TABLESAMPLE SYSTEM ((SELECT percent FROM samples WHERE kind = {DELAYED})), clock
    GROUP BY d.queue_id
    UNION ALL
    SELECT c.queue_id, {LEASED}, COALESCE(sum(cardinality(c.seqs)) FILTER (WHERE c.deadline >= clock.now), 0),
        COALESCE(sum(cardinality(c.seqs)) FILTER (WHERE c.deadline < clock.now), 0)
    FROM leasequeue_claim c, clock GROUP BY c.queue_id
    UNION ALL
    SELECT l.queue_id, {DEAD}, count(*), 0
    FROM leasequeue_deadletter l TABLESAMPLE SYSTEM ((SELECT percent FROM samples WHERE kind = {DEAD}))
    WHERE l.in_place GROUP BY l.queue_id
    UNION ALL
    SELECT o.queue_id, {RECORD}, count(*), 0
    FROM leasequeue_record o TABLESAMPLE SYSTEM ((SELECT percent FROM samples WHERE kind = {RECORD}))
    GROUP BY o.queue_id
), estimated AS MATERIALIZED (
    SELECT counted.queue_id, counted.kind, counted.n * f.factor AS n, counted.over * f.factor AS over
    FROM counted LEFT JOIN samples ON samples.kind = counted.kind,
        LATERAL (SELECT COALESCE(100 / samples.percent, 1) AS factor) f
)
SELECT estimated.queue_id, EXISTS (SELECT FROM leasequeue_queue q WHERE q.id = estimated.queue_id),
    COALESCE(sum(CASE WHEN estimated.kind = {READY} THEN estimated.n ELSE estimated.over END), 0)::bigint AS ready,
    COALESCE(sum(estimated.n) FILTER (WHERE estimated.kind = {DELAYED}), 0)::bigint AS delayed,
    COALESCE(sum(estimated.n) FILTER (WHERE estimated.kind = {LEASED}), 0)::bigint AS leased,
    COALESCE(sum(estimated.n) FILTER (WHERE estimated.kind = {DEAD}), 0)::bigint AS dead,
    COALESCE(sum(estimated.n) FILTER (WHERE estimated.kind = {RECORD}), 0)::bigint AS records
FROM estimated GROUP BY estimated.queue_id
