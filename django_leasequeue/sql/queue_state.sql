-- Purpose: one picture of a queue, of one snapshot and without locks: the head of the ready jobs in claim order, and what is
--   leased (of the claims that end first).
-- Parameters: project, queue, size, now.
-- Index: leasequeue_job_ready, leasequeue_claim_deadline (both from the floor on), leasequeue_job_pkey.
-- Returns: first a row of version and time; then state, seq, key, name, created_at, deliveries, node, claim, deadline.
--   version: a million for each transaction that has ended (the highest number alone stays when an older transaction ends
--   after a newer one), and what the caller's own open transaction has changed in the table of jobs.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), s AS MATERIALIZED (
    SELECT pg_snapshot_xmax(now)::text::bigint AS xmax, (SELECT count(*) FROM pg_snapshot_xip(now)) AS running,
        pg_current_xact_id_if_assigned()::text::bigint AS own
    FROM (SELECT pg_current_snapshot() AS now) n
), v AS MATERIALIZED (
    SELECT (xmax - running - CASE WHEN own < xmax THEN 1 ELSE 0 END) * 1000000 + CASE WHEN own IS NULL THEN 0
        ELSE LEAST(999999, pg_stat_get_xact_tuples_inserted(j) + pg_stat_get_xact_tuples_updated(j)
            + pg_stat_get_xact_tuples_deleted(j)) END AS version
    FROM s, (SELECT 'leasequeue_job'::regclass::oid AS j) j
), f AS MATERIALIZED (
    SELECT q.id, f.rank, f.value
    FROM leasequeue_queue q JOIN leasequeue_queuefloor f ON f.queue_id = q.id AND f.kind = 0
    WHERE q.project = %(project)s AND q.name = %(queue)s ORDER BY f.rank
), r AS MATERIALIZED (
    SELECT j.* FROM f CROSS JOIN LATERAL (
        SELECT j.* FROM leasequeue_job j
        WHERE j.queue_id = f.id AND j.rank = f.rank AND j.state = 0 AND j.position >= f.value
            AND (j.expires_at IS NULL OR j.expires_at > (SELECT now FROM t))
        ORDER BY j.position LIMIT %(size)s::int) j
    LIMIT %(size)s::int
), c AS MATERIALIZED (
    SELECT u.seq FROM leasequeue_queue q CROSS JOIN LATERAL (
        SELECT c.seqs FROM leasequeue_claim c WHERE c.queue_id = q.id
            AND c.deadline >= COALESCE((SELECT 'epoch'::timestamptz + f.value * interval '1 us'
                FROM leasequeue_queuefloor f WHERE f.queue_id = q.id AND f.kind = 2 AND f.rank = 0), '-infinity')
        ORDER BY c.deadline LIMIT 100) c
    CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    WHERE q.project = %(project)s AND q.name = %(queue)s
), l AS MATERIALIZED (
    SELECT j.* FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(SELECT seq FROM c)) AND j.state = 2
    ORDER BY j.deadline, j.seq LIMIT %(size)s::int
)
SELECT x.state, x.seq, x.key, x.name, x.created_at, x.deliveries, x.node, x.claim, x.deadline FROM (
    SELECT 0 AS part, 0 AS n, NULL::smallint AS state, (SELECT version FROM v) AS seq,
        NULL::text AS key, NULL::text AS name, t.now AS created_at, NULL::int AS deliveries, NULL::text AS node,
        NULL::bigint AS claim, NULL::timestamptz AS deadline
    FROM t
    UNION ALL
    SELECT 1, row_number() OVER (ORDER BY rank, position), state, seq, key, name, created_at, deliveries, node, claim,
        deadline FROM r
    UNION ALL
    SELECT 2, row_number() OVER (ORDER BY deadline, seq), state, seq, key, name, created_at, deliveries, node, claim,
        deadline FROM l
) x ORDER BY x.part, x.n
