-- Purpose: a snapshot of a queue, without locks: the head of the ready jobs in claim order, and
--   what is leased (of the claims that end first).
-- Parameters: project, queue, size (of each kind: one more than is wanted says whether there are more), now.
-- Index: leasequeue_rank_place, leasequeue_ready_pkey (the fresh lane) and leasequeue_claim_deadline from the floor on,
--   leasequeue_job_pkey.
-- Pages: 20 + 6 a row
-- Returns: first a row of version and time. The version: a million for each transaction that has ended (the highest
--   number alone stays when an older transaction ends after a newer one), and what the caller's own open transaction
--   has changed of jobs and their places.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), snapshot AS MATERIALIZED (
    SELECT pg_snapshot_xmax(now)::text::bigint AS xmax, (SELECT count(*) FROM pg_snapshot_xip(now)) AS running,
        pg_current_xact_id_if_assigned()::text::bigint AS own
    FROM (SELECT pg_current_snapshot() AS now) n
), versions AS MATERIALIZED (
    SELECT (xmax - running - CASE WHEN own < xmax THEN 1 ELSE 0 END) * 1000000
        + CASE WHEN own IS NULL THEN 0 ELSE LEAST(999999, c.changes) END AS version
    FROM snapshot, (
        SELECT sum(pg_stat_get_xact_tuples_inserted(r) + pg_stat_get_xact_tuples_updated(r)
            + pg_stat_get_xact_tuples_deleted(r))::bigint AS changes
        FROM unnest('{leasequeue_job, leasequeue_ready, leasequeue_delayed, leasequeue_claim, leasequeue_deadletter,
            leasequeue_jobresult}'::regclass[]) AS r) c
), queue AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), ranks AS MATERIALIZED (
    SELECT queue.id, k.rank, {floor(queue.id, {floor.READY}, k.rank)} AS floor
    FROM queue CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = queue.id) k
    ORDER BY k.rank
), ready AS MATERIALIZED (
    SELECT r.seq, r.rank, r.position, r.deliveries FROM ranks CROSS JOIN LATERAL (
        SELECT r.* FROM (VALUES ({AGAIN}, 0), ({FRESH}, ranks.floor)) AS l(lane, low) CROSS JOIN LATERAL (
            SELECT r.* FROM leasequeue_ready r
            WHERE r.queue_id = ranks.id AND r.rank = ranks.rank AND r.lane = l.lane AND r.position >= l.low
                AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM clock))
            ORDER BY r.position LIMIT %(size)s::int) r
        ORDER BY r.position LIMIT %(size)s::int) r
    LIMIT %(size)s::int
), claims AS MATERIALIZED (
    SELECT c.*, sum(cardinality(c.seqs)) OVER (ORDER BY c.deadline, c.token, c.part) - cardinality(c.seqs) AS before
    FROM queue CROSS JOIN LATERAL (
        SELECT * FROM leasequeue_claim c WHERE c.queue_id = queue.id
            AND c.deadline >= {since(queue.id, {floor.CLAIM})}
        ORDER BY c.deadline LIMIT %(size)s::int) c
), leased AS MATERIALIZED (
    SELECT u.seq, claims.node, claims.token, claims.deadline, COALESCE(u.deliveries, 1) AS deliveries,
        GREATEST(claims.created_at, claims.deadline - claims.ttl_ms * interval '1 ms') AS renewed_at
    FROM claims CROSS JOIN LATERAL unnest(claims.seqs, claims.deliveries) AS u(seq, deliveries)
    WHERE claims.before < %(size)s::int ORDER BY claims.deadline, u.seq LIMIT %(size)s::int
), jobs AS MATERIALIZED (
    SELECT {READY} AS state, row_number() OVER (ORDER BY rank, position) AS n, seq, deliveries, NULL::text AS node,
        NULL::bigint AS token, NULL::timestamptz AS deadline, NULL::timestamptz AS renewed_at FROM ready
    UNION ALL
    SELECT {LEASED}, row_number() OVER (ORDER BY deadline, seq), seq, deliveries, node, token, deadline, renewed_at
    FROM leased
)
SELECT NULL::int AS state, versions.version AS seq, NULL::text AS key, NULL::text AS name, clock.now AS created_at,
    NULL::int AS deliveries, NULL::text AS node, NULL::bigint AS claim, NULL::timestamptz AS deadline,
    NULL::timestamptz AS renewed_at, 0::bigint AS n
FROM clock, versions
UNION ALL
SELECT jobs.state, jobs.seq, j.key, j.name, j.created_at, jobs.deliveries, jobs.node, jobs.token, jobs.deadline,
    jobs.renewed_at, jobs.n
FROM jobs CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = jobs.seq OFFSET 0) j
ORDER BY state NULLS FIRST, n
