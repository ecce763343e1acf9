-- Purpose: one picture of a queue, of one snapshot and without locks: the head of the ready jobs in claim order, and what is
--   leased (of the claims that end first).
-- Parameters: project, queue, size (of each kind: one more than is wanted says whether there are more), now.
-- Index: leasequeue_rank_place, leasequeue_ready_pkey (the fresh lane) and leasequeue_claim_deadline from the floor on,
--   leasequeue_job_pkey.
-- Pages: 20 + 6 a row
-- Returns: first a row of version and time; then state, seq, key, name, created_at, deliveries, node, claim, deadline, and when the
--   lease was taken or renewed last.
--   version: a million for each transaction that has ended (the highest number alone stays when an older transaction ends
--   after a newer one), and what the caller's own open transaction has changed of jobs and their places.
WITH t AS MATERIALIZED (SELECT {now()} AS now), s AS MATERIALIZED (
    SELECT pg_snapshot_xmax(now)::text::bigint AS xmax, (SELECT count(*) FROM pg_snapshot_xip(now)) AS running,
        pg_current_xact_id_if_assigned()::text::bigint AS own
    FROM (SELECT pg_current_snapshot() AS now) n
), v AS MATERIALIZED (
    SELECT (xmax - running - CASE WHEN own < xmax THEN 1 ELSE 0 END) * 1000000
        + CASE WHEN own IS NULL THEN 0 ELSE LEAST(999999, c.changes) END AS version
    FROM s, (
        SELECT sum(pg_stat_get_xact_tuples_inserted(r) + pg_stat_get_xact_tuples_updated(r)
            + pg_stat_get_xact_tuples_deleted(r))::bigint AS changes
        FROM unnest('{leasequeue_job, leasequeue_ready, leasequeue_delayed, leasequeue_claim, leasequeue_deadletter,
            leasequeue_jobresult}'::regclass[]) AS r) c
), q AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), f AS MATERIALIZED (
    SELECT q.id, k.rank, {floor(q.id, 0, k.rank)} AS floor
    FROM q CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id) k ORDER BY k.rank
), r AS MATERIALIZED (
    SELECT r.seq, r.rank, r.position, r.deliveries FROM f CROSS JOIN LATERAL (
        SELECT r.* FROM (VALUES (1, 0), (2, f.floor)) AS l(lane, low) CROSS JOIN LATERAL (
            SELECT r.* FROM leasequeue_ready r
            WHERE r.queue_id = f.id AND r.rank = f.rank AND r.lane = l.lane AND r.position >= l.low
                AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM t))
            ORDER BY r.position LIMIT %(size)s::int) r
        ORDER BY r.position LIMIT %(size)s::int) r
    LIMIT %(size)s::int
), c AS MATERIALIZED (
    SELECT c.*, sum(cardinality(c.seqs)) OVER (ORDER BY c.deadline, c.token, c.part) - cardinality(c.seqs) AS before
    FROM q CROSS JOIN LATERAL (
        SELECT * FROM leasequeue_claim c WHERE c.queue_id = q.id
            AND c.deadline >= 'epoch'::timestamptz + interval '1 us' * {floor(q.id, 2, 0)}
        ORDER BY c.deadline LIMIT %(size)s::int) c
), l AS MATERIALIZED (
    SELECT u.seq, c.node, c.token, c.deadline, COALESCE(u.deliveries, 1) AS deliveries,
        GREATEST(c.created_at, c.deadline - c.ttl_ms * interval '1 ms') AS renewed_at
    FROM c CROSS JOIN LATERAL unnest(c.seqs, c.deliveries) AS u(seq, deliveries)
    WHERE c.before < %(size)s::int ORDER BY c.deadline, u.seq LIMIT %(size)s::int
), x AS MATERIALIZED (
    SELECT 0 AS state, row_number() OVER (ORDER BY rank, position) AS n, seq, deliveries, NULL::text AS node,
        NULL::bigint AS token, NULL::timestamptz AS deadline, NULL::timestamptz AS renewed_at FROM r
    UNION ALL
    SELECT 2, row_number() OVER (ORDER BY deadline, seq), seq, deliveries, node, token, deadline, renewed_at FROM l
)
SELECT NULL::int AS state, v.version AS seq, NULL::text AS key, NULL::text AS name, t.now AS created_at,
    NULL::int AS deliveries, NULL::text AS node, NULL::bigint AS claim, NULL::timestamptz AS deadline,
    NULL::timestamptz AS renewed_at, 0::bigint AS n
FROM t, v
UNION ALL
SELECT x.state, x.seq, j.key, j.name, j.created_at, x.deliveries, x.node, x.token, x.deadline, x.renewed_at, x.n
FROM x CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = x.seq OFFSET 0) j
ORDER BY state NULLS FIRST, n
