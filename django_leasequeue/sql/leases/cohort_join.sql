-- Purpose: claimers join the cohort of a queue; the first of a cohort opens its window.
-- Parameters: queue (id), jitter_ms; arrays, one entry a claimer: nodes, sizes, leases, connections; now.
-- Index: leasequeue_waiter_open.
-- Pages: 50
WITH clock AS MATERIALIZED (SELECT {now()} AS now), opened AS MATERIALIZED (
    SELECT LEAST(clock.now + %(jitter_ms)s::int * interval '1 ms', (
            SELECT min(x.closes_at) FROM leasequeue_claimwaiter x
            WHERE x.queue_id = %(queue)s::bigint AND x.dealt_at IS NULL AND x.closes_at > clock.now)) AS closes_at,
        clock.now
    FROM clock
), new AS (
    INSERT INTO leasequeue_claimwaiter (queue_id, node, size, lease_ms, connection, joined_at, closes_at)
    SELECT %(queue)s::bigint, u.node, u.size, u.lease, u.connection, opened.now, opened.closes_at
    FROM opened, ROWS FROM (unnest(%(nodes)s::text[]), unnest(%(sizes)s::int[]), unnest(%(leases)s::bigint[]),
        unnest(%(connections)s::text[])) WITH ORDINALITY AS u(node, size, lease, connection, n)
    ORDER BY u.n
    RETURNING id
)
SELECT ARRAY(SELECT id FROM new ORDER BY id), (SELECT extract(epoch FROM closes_at - now)::float8 * 1000 FROM opened)
