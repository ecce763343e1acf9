-- Purpose: take jobs and records out, wherever they stand: the place, the job, its attempts, its dead letter; write the
--   events, tell who waits, remember the highest number. Waits for a concurrent claim and then sees its lease: never
--   both.
-- Parameters: queue (id), seqs, places (states that may be removed), reason (null:
--   none), expired (only those past their time), undo (whether jobs with steps to undo stay), gap ('cap' or 'ttl':
--   readers that come too late are told; null: not), now.
-- Index: leasequeue_job_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey, leasequeue_record_pkey,
--   leasequeue_deadletter_pkey, leasequeue_attempt_job, leasequeue_floor_place, leasequeue_jobstep_pkey; leased ones:
--   the live claims of the queue.
-- Pages: 20 + 18 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now, {txid()} AS txid), asked AS MATERIALIZED (
    SELECT seq, rank, COALESCE(position, seq) AS position FROM leasequeue_job
    WHERE seq = ANY (%(seqs)s::bigint[]) AND queue_id + 0 = %(queue)s::bigint
        AND (NOT %(undo)s::bool OR NOT {undoes(leasequeue_job.seq)})
), places AS MATERIALIZED (
    -- Two places of a row: where this statement sees it, and where it is after a concurrent change of it.
    SELECT p.* FROM clock, asked CROSS JOIN LATERAL (
        SELECT a.place, b.place AS last FROM (VALUES ({FRESH}::smallint), ({AGAIN}::smallint)) AS v(lane)
        CROSS JOIN LATERAL (
            SELECT r.ctid AS place FROM leasequeue_ready r
            WHERE r.queue_id = %(queue)s::bigint AND r.rank = asked.rank AND r.lane = v.lane
                AND r.position = asked.position OFFSET 0) a
        CROSS JOIN LATERAL (
            SELECT r.ctid AS place FROM leasequeue_ready r
            WHERE r.queue_id = %(queue)s::bigint AND r.rank = asked.rank AND r.lane = v.lane
                AND r.position = asked.position
                AND (NOT %(expired)s::bool OR r.expires_at <= clock.now)
            FOR UPDATE) b
        LIMIT 1) p
    WHERE {READY} = ANY (%(places)s::int[])
), ready AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(SELECT place FROM places UNION SELECT last FROM places))
    RETURNING seq, {READY} AS state, deliveries, flags
), delayed AS (
    DELETE FROM leasequeue_delayed d USING clock
    WHERE d.seq = ANY (%(seqs)s::bigint[]) AND d.queue_id + 0 = %(queue)s::bigint
        AND {DELAYED} = ANY (%(places)s::int[])
        AND (NOT %(expired)s::bool OR d.expires_at <= clock.now)
        AND (NOT %(undo)s::bool OR NOT {undoes(d.seq)})
    RETURNING d.seq, {DELAYED} AS state, d.deliveries, d.flags
), dead AS (
    DELETE FROM leasequeue_deadletter x USING clock
    WHERE x.seq = ANY (%(seqs)s::bigint[]) AND x.queue_id + 0 = %(queue)s::bigint AND x.in_place
        AND {DEAD} = ANY (%(places)s::int[])
        AND (NOT %(expired)s::bool OR x.expires_at <= clock.now)
    RETURNING x.seq, {DEAD} AS state, x.deliveries
), records AS (
    -- Records are never changed: each stays at its place.
    DELETE FROM leasequeue_record WHERE ctid = ANY (ARRAY(
        SELECT o.place FROM clock, unnest(%(seqs)s::bigint[]) AS u(seq) CROSS JOIN LATERAL (
            SELECT o.ctid AS place FROM leasequeue_record o WHERE o.queue_id = %(queue)s::bigint AND o.seq = u.seq
                AND (NOT %(expired)s::bool OR o.expires_at <= clock.now) OFFSET 0) o
        WHERE {RECORD} = ANY (%(places)s::int[])))
    RETURNING seq, {RECORD} AS state, 0 AS deliveries
), claims AS MATERIALIZED (
    SELECT c.token, c.part, c.node, c.connection, c.seqs, c.deliveries FROM leasequeue_claim c
    WHERE {LEASED} = ANY (%(places)s::int[]) AND NOT %(expired)s::bool AND c.queue_id = %(queue)s::bigint
        AND c.seqs && %(seqs)s::bigint[]
    ORDER BY c.token + 0, c.part FOR NO KEY UPDATE
), leased AS MATERIALIZED (
    SELECT claims.token, claims.part, claims.node, u.seq, COALESCE(u.deliveries, 1) AS deliveries,
        asked.seq IS NOT NULL AS wanted
    FROM claims CROSS JOIN LATERAL unnest(claims.seqs, claims.deliveries) AS u(seq, deliveries)
    LEFT JOIN asked ON asked.seq = u.seq
), remaining AS MATERIALIZED (
    SELECT token, part, array_agg(seq) FILTER (WHERE NOT wanted) AS seqs,
        array_agg(deliveries) FILTER (WHERE NOT wanted) AS deliveries
    FROM leased GROUP BY token, part HAVING bool_or(wanted)
), {shrink(ARRAY(SELECT token FROM remaining))}, removed AS MATERIALIZED (
    SELECT seq, state, deliveries, NULL::bigint AS token, NULL::text AS node FROM ready
    UNION ALL SELECT seq, state, deliveries, NULL, NULL FROM delayed
    UNION ALL SELECT seq, state, deliveries, NULL, NULL FROM dead
    UNION ALL SELECT seq, state, deliveries, NULL, NULL FROM records
    UNION ALL SELECT seq, {LEASED}, deliveries, token, node FROM leased WHERE wanted
), turns AS (
    -- Those that were leased are noted by the trigger of the claims.
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
    SELECT %(queue)s::bigint, 'epoch', {turn.LOOK}, array_agg(f.seq)
    FROM (SELECT seq FROM ready WHERE flags & {FLOW} <> 0 UNION ALL SELECT seq FROM delayed WHERE flags & {FLOW} <> 0
        UNION ALL SELECT dead.seq FROM dead WHERE EXISTS (SELECT FROM leasequeue_member m
            WHERE m.seq = dead.seq OFFSET 0)) f
    HAVING count(*) > 0
), jobs AS (
    DELETE FROM leasequeue_job WHERE seq = ANY (ARRAY(SELECT seq FROM removed)) AND {removing()}
    RETURNING seq, key, name, reply_to, created_at, {bytes(leasequeue_job)} AS bytes
), gone AS MATERIALIZED (
    SELECT removed.*, jobs.key, jobs.name, jobs.reply_to, jobs.created_at, jobs.bytes
    FROM removed JOIN jobs ON jobs.seq = removed.seq
), attempts AS (
    DELETE FROM leasequeue_attempt WHERE seq = ANY (ARRAY(SELECT seq FROM removed))
), dead_letters AS (
    DELETE FROM leasequeue_deadletter WHERE seq = ANY (ARRAY(SELECT seq FROM removed WHERE state <> {DEAD}))
        AND NOT in_place
), high AS MATERIALIZED (
    SELECT max(seq) AS seq, min(seq) AS low, count(*) AS n, max(created_at) AS at, sum(bytes)::bigint AS bytes,
        count(*) FILTER (WHERE state <> {DEAD}) AS lost, min(seq) FILTER (WHERE state <> {DEAD}) AS lost_low,
        max(seq) FILTER (WHERE state <> {DEAD}) AS lost_high
    FROM gone
), head AS (
    {note_highest(SELECT %(queue)s::bigint AS queue_id, high.seq AS high, clock.now FROM high, clock)}
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
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, claim, low, high, kind, node, name, seqs,
        deliveries, detail)
    SELECT clock.txid, clock.now, %(queue)s::bigint, g.token, min(g.seq), max(g.seq), {event.CANCELLED}, g.node, g.name,
        array_agg(g.seq ORDER BY g.seq), array_agg(g.deliveries ORDER BY g.seq),
        CASE WHEN %(reason)s::text IS NOT NULL THEN jsonb_build_object('reason', %(reason)s::text) END
    FROM clock, (SELECT *, (row_number() OVER () - 1) / 1000 AS part FROM gone WHERE state <> {RECORD}) g
    GROUP BY clock.txid, clock.now, g.token, g.node, g.name, g.part
)
SELECT g.seq, g.state, g.key, g.name, g.deliveries, g.bytes, CASE WHEN g.reply_to IS NOT NULL AND g.state <> {DEAD}
    THEN {tell_callers(g, {result.CANCELLED})} END,
    (SELECT count(pg_notify(split_part(claims.connection, ':', 1), split_part(claims.connection, ':', 2))::text)
        FROM claims WHERE claims.connection IS NOT NULL AND EXISTS (SELECT FROM remaining
            WHERE remaining.token = claims.token))
FROM gone g
