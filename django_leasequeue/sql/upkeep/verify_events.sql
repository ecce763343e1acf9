-- Purpose: replay the lease log and compare where it says each job is with where the job stands. One pass over the log,
--   one over the places, hashed on the server (with work_mem, then on disk): memory does not grow with the log. Order
--   within one job is that of the event's id: it is drawn while the job's place is locked. (By transaction would be
--   wrong: a transaction that has its number early may change a job after one that got a higher number.)
-- Parameters: size (differences returned), since (time; null: the whole log), now.
-- Index: leasequeue_event_occurred where since is given; otherwise whole tables: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Returns: first a row of totals: differences, jobs with events, jobs leased, leases that the log does not reach back
--   to; then difference, seq, queue id, what the log says, what the place says (json).
{keeps_host_settings(verify_snapshot.sql has set the planner)}
WITH span AS MATERIALIZED (
    SELECT COALESCE(%(since)s::timestamptz, '-infinity') AS since, (SELECT min(occurred_at) FROM leasequeue_leaseevent
        WHERE occurred_at >= COALESCE(%(since)s::timestamptz, '-infinity')) AS oldest
), last AS MATERIALIZED (
    SELECT u.seq, max(e.id) AS id, min(e.queue_id) AS queue_id,
        max(e.id) FILTER (WHERE e.kind IN ({event.CLAIMED}, {event.EXTENDED})) AS held,
        max(e.id) FILTER (WHERE e.kind IN ({event.ENQUEUED}, {event.RELEASED}, {event.EXPIRED})
            OR (e.kind = {event.REDRIVEN} AND e.detail -> 'to' IS NULL)) AS free,
        max(e.id) FILTER (WHERE e.kind = {event.DEAD_LETTERED} AND e.detail -> 'to' IS NULL) AS dead
    FROM span CROSS JOIN leasequeue_leaseevent e CROSS JOIN LATERAL unnest(e.seqs) AS u(seq)
    -- That a job was linked to others (11) does not move it.
    WHERE e.occurred_at >= span.since AND e.kind <> {event.LINKED} GROUP BY u.seq
), said AS MATERIALIZED (
    SELECT l.seq, l.queue_id, l.id, CASE l.id WHEN l.held THEN 'leased' WHEN l.free THEN 'waiting'
        WHEN l.dead THEN 'dead'
        ELSE 'ended' END AS place
    FROM last l
), held AS MATERIALIZED (
    SELECT u.seq, e.node, e.claim, COALESCE(u.deliveries, 1) AS deliveries, e.deadline
    FROM (SELECT * FROM leasequeue_leaseevent WHERE id IN (SELECT id FROM said WHERE place = 'leased')) e
    CROSS JOIN LATERAL unnest(e.seqs, e.deliveries) AS u(seq, deliveries)
    JOIN said s ON s.seq = u.seq AND s.id = e.id
), live AS MATERIALIZED (
    SELECT seq, queue_id, 'waiting' AS place, NULL AS node, NULL::bigint AS claim, deliveries,
        NULL::timestamptz AS deadline, NULL::timestamptz AS claimed_at
    FROM leasequeue_ready
    UNION ALL
    SELECT seq, queue_id, 'waiting', NULL, NULL, deliveries, NULL, NULL FROM leasequeue_delayed
    UNION ALL
    SELECT seq, queue_id, 'dead', NULL, NULL, deliveries, NULL, NULL FROM leasequeue_deadletter WHERE in_place
    UNION ALL
    SELECT u.seq, c.queue_id, 'leased', c.node, c.token, COALESCE(u.deliveries, 1), c.deadline, c.created_at
    FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs, c.deliveries) AS u(seq, deliveries)
    WHERE u.seq IS NOT NULL
), differences AS MATERIALIZED (
    SELECT CASE
            WHEN s.seq IS NULL THEN CASE WHEN l.place = 'leased' THEN
                CASE WHEN l.claimed_at >= span.oldest OR span.oldest IS NULL THEN 'lease_without_event'
                    ELSE 'unknown' END END
            WHEN l.seq IS NULL THEN CASE WHEN s.place = 'leased' THEN 'lease_without_job'
                WHEN s.place = 'waiting' THEN 'lost_job' END
            WHEN s.place <> l.place THEN CASE WHEN s.place = 'ended' THEN 'ended_job' ELSE 'other_place' END
            WHEN s.place = 'leased' AND (h.node, h.claim, h.deliveries, h.deadline)
                IS DISTINCT FROM (l.node, l.claim, l.deliveries, l.deadline) THEN 'other_holder'
        END AS difference, COALESCE(s.seq, l.seq) AS seq, COALESCE(l.queue_id, s.queue_id) AS queue_id,
        s.place AS said, l.place AS found, h.node AS h_node, h.claim AS h_claim, h.deliveries AS h_deliveries,
        h.deadline AS h_deadline, l.node, l.claim, l.deliveries, l.deadline
    FROM said s FULL JOIN live l ON l.seq = s.seq LEFT JOIN held h ON h.seq = s.seq, span
), shown AS MATERIALIZED (
    SELECT differences.* FROM differences JOIN leasequeue_queue q ON q.id = differences.queue_id
    WHERE differences.difference IS NOT NULL AND differences.difference <> 'unknown'
)
SELECT NULL AS difference, (SELECT count(*) FROM shown) AS seq, (SELECT count(*) FROM said) AS queue_id,
    (SELECT count(*) FROM live WHERE place = 'leased')::text AS log,
    (SELECT count(*) FROM differences WHERE difference = 'unknown')::text AS found
UNION ALL
SELECT differing.difference, differing.seq, differing.queue_id,
    jsonb_strip_nulls(jsonb_build_object('place', differing.said, 'node', differing.h_node,
        'claim', differing.h_claim, 'deliveries', differing.h_deliveries, 'deadline', differing.h_deadline))::text,
    jsonb_strip_nulls(jsonb_build_object('place', COALESCE(differing.found, 'nowhere'), 'node', differing.node, 'claim',
        differing.claim, 'deliveries', differing.deliveries, 'deadline', differing.deadline))::text
FROM (SELECT * FROM shown ORDER BY seq LIMIT %(size)s::int) differing
