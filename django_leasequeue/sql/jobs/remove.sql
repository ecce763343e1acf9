-- Purpose: take jobs and records out, wherever they stand: the place, the job, its attempts, its dead letter; write the events,
--   tell who waits, remember the highest number. Waits for a concurrent claim and then sees its lease: never both.
-- Parameters: queue (id), seqs, places (states that may be removed: 0 ready, 1 delayed, 2 leased, 3 dead, 4 record), reason (null:
--   none), expired (only those past their time), gap ('cap' or 'ttl': readers that come too late are told; null: not), now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey, leasequeue_record_pkey,
--   leasequeue_deadletter_pkey, leasequeue_attempt_job, leasequeue_floor_place; leased ones: the live claims of the queue.
-- Pages: 20 + 18 a row
-- Returns: seq, state, key, name, deliveries, bytes; telling.
WITH t AS MATERIALIZED (SELECT {now()} AS now, pg_current_xact_id()::text::bigint AS txid), j AS MATERIALIZED (
    SELECT seq, rank, COALESCE(position, seq) AS position FROM leasequeue_job
    WHERE seq = ANY (%(seqs)s::bigint[]) AND queue_id + 0 = %(queue)s::bigint
), p AS MATERIALIZED (
    -- Two places of a row: where this statement sees it, and where it is after a concurrent change of it.
    SELECT p.* FROM t, j CROSS JOIN LATERAL (
        SELECT a.place, b.place AS last FROM (VALUES (2::smallint), (1::smallint)) AS v(lane)
        CROSS JOIN LATERAL (
            SELECT r.ctid AS place FROM leasequeue_ready r
            WHERE r.queue_id = %(queue)s::bigint AND r.rank = j.rank AND r.lane = v.lane AND r.position = j.position OFFSET 0) a
        CROSS JOIN LATERAL (
            SELECT r.ctid AS place FROM leasequeue_ready r
            WHERE r.queue_id = %(queue)s::bigint AND r.rank = j.rank AND r.lane = v.lane AND r.position = j.position
                AND (NOT %(expired)s::bool OR r.expires_at <= t.now)
            FOR UPDATE) b
        LIMIT 1) p
    WHERE 0 = ANY (%(places)s::int[])
), r AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM p UNION SELECT last FROM p))
    RETURNING seq, 0 AS state, deliveries, flags
), d AS (
    DELETE FROM leasequeue_delayed d USING t
    WHERE d.seq = ANY (%(seqs)s::bigint[]) AND d.queue_id + 0 = %(queue)s::bigint AND 1 = ANY (%(places)s::int[])
        AND (NOT %(expired)s::bool OR d.expires_at <= t.now)
    RETURNING d.seq, 1 AS state, d.deliveries, d.flags
), x AS (
    DELETE FROM leasequeue_deadletter x USING t
    WHERE x.seq = ANY (%(seqs)s::bigint[]) AND x.queue_id + 0 = %(queue)s::bigint AND x.in_place AND 3 = ANY (%(places)s::int[])
        AND (NOT %(expired)s::bool OR x.expires_at <= t.now)
    RETURNING x.seq, 3 AS state, x.deliveries
), o AS (
    -- Records are never changed: each stays at its place.
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(
        SELECT o.place FROM t, unnest(%(seqs)s::bigint[]) AS u(seq) CROSS JOIN LATERAL (
            SELECT o.ctid AS place FROM leasequeue_record o WHERE o.queue_id = %(queue)s::bigint AND o.seq = u.seq
                AND (NOT %(expired)s::bool OR o.expires_at <= t.now) OFFSET 0) o
        WHERE 4 = ANY (%(places)s::int[])))
    RETURNING seq, 4 AS state, 0 AS deliveries
), k AS MATERIALIZED (
    SELECT c.token, c.part, c.node, c.connection, c.seqs, c.deliveries FROM leasequeue_claim c
    WHERE 2 = ANY (%(places)s::int[]) AND NOT %(expired)s::bool AND c.queue_id = %(queue)s::bigint
        AND c.seqs && %(seqs)s::bigint[]
    ORDER BY c.token + 0, c.part FOR NO KEY UPDATE
), u AS MATERIALIZED (
    SELECT k.token, k.part, k.node, u.seq, COALESCE(u.deliveries, 1) AS deliveries, j.seq IS NOT NULL AS wanted
    FROM k CROSS JOIN LATERAL unnest(k.seqs, k.deliveries) AS u(seq, deliveries) LEFT JOIN j ON j.seq = u.seq
), m AS MATERIALIZED (
    SELECT u.token, u.part, array_agg(u.seq) FILTER (WHERE NOT u.wanted) AS seqs,
        array_agg(u.deliveries) FILTER (WHERE NOT u.wanted) AS deliveries
    FROM u GROUP BY u.token, u.part HAVING bool_or(u.wanted)
), {shrink(ARRAY(SELECT token FROM m))}, g AS MATERIALIZED (
    SELECT seq, state, deliveries, NULL::bigint AS token, NULL::text AS node FROM r
    UNION ALL SELECT seq, state, deliveries, NULL, NULL FROM d
    UNION ALL SELECT seq, state, deliveries, NULL, NULL FROM x
    UNION ALL SELECT seq, state, deliveries, NULL, NULL FROM o
    UNION ALL SELECT seq, 2, deliveries, token, node FROM u WHERE wanted
), turns AS (
    -- Those that were leased are noted by the trigger of the claims.
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT %(queue)s::bigint, 'epoch', 2, array_agg(f.seq)
    FROM (SELECT seq FROM r WHERE flags & 128 <> 0 UNION ALL SELECT seq FROM d WHERE flags & 128 <> 0
        UNION ALL SELECT x.seq FROM x WHERE EXISTS (SELECT FROM leasequeue_member m WHERE m.seq = x.seq OFFSET 0)) f
    HAVING count(*) > 0
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM g)) AND {removing()}
    RETURNING seq, key, name, reply_to, created_at, COALESCE(octet_length(data::text), 0) + COALESCE(octet_length(meta::text), 0)
        + COALESCE(octet_length(body), 0) AS bytes
), gone AS MATERIALIZED (
    SELECT g.*, jobs.key, jobs.name, jobs.reply_to, jobs.created_at, jobs.bytes FROM g JOIN jobs ON jobs.seq = g.seq
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM g))
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM g WHERE state <> 3)) AND NOT in_place
), high AS MATERIALIZED (
    SELECT max(seq) AS seq, min(seq) AS low, count(*) AS n, max(created_at) AS at, sum(bytes)::bigint AS bytes,
        count(*) FILTER (WHERE state <> 3) AS lost, min(seq) FILTER (WHERE state <> 3) AS lost_low,
        max(seq) FILTER (WHERE state <> 3) AS lost_high
    FROM gone
), head AS (
    {note_highest(SELECT %(queue)s::bigint AS queue_id, high.seq AS high, t.now FROM high, t)}
), counted AS (
    UPDATE leasequeue_topicstate s SET records = s.records - high.n, bytes = s.bytes - high.bytes,
        last_write_at = GREATEST(s.last_write_at, high.at),
        gap_from = CASE WHEN %(gap)s::text IS NULL THEN s.gap_from ELSE LEAST(s.gap_from, high.lost_low) END,
        gap_to = CASE WHEN %(gap)s::text IS NULL THEN s.gap_to ELSE GREATEST(s.gap_to, high.lost_high) END,
        gap_count = s.gap_count + CASE WHEN %(gap)s::text IS NULL THEN 0 ELSE high.lost END,
        gap_reason = CASE WHEN %(gap)s::text IS NULL OR high.lost = 0 THEN s.gap_reason ELSE %(gap)s::text END
    FROM high WHERE s.queue_id = %(queue)s::bigint AND high.n > 0
        AND (s.records IS NOT NULL OR %(gap)s::text IS NOT NULL)
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs, deliveries, detail)
    SELECT t.txid, t.now, %(queue)s::bigint, g.token, min(g.seq), max(g.seq), 10, g.node, g.name, array_agg(g.seq ORDER BY g.seq),
        array_agg(g.deliveries ORDER BY g.seq),
        CASE WHEN %(reason)s::text IS NOT NULL THEN jsonb_build_object('reason', %(reason)s::text) END
    FROM t, (SELECT *, (row_number() OVER () - 1) / 1000 AS part FROM gone WHERE state <> 4) g
    GROUP BY t.txid, t.now, g.token, g.node, g.name, g.part
)
SELECT g.seq, g.state, g.key, g.name, g.deliveries, g.bytes, CASE WHEN g.reply_to IS NOT NULL AND g.state <> 3
    THEN {tell_callers(g, 3)} END,
    (SELECT count(pg_notify(split_part(k.connection, ':', 1), split_part(k.connection, ':', 2))::text)
        FROM k WHERE k.connection IS NOT NULL AND EXISTS (SELECT FROM m WHERE m.token = k.token))
FROM gone g
