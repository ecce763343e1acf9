-- Purpose: figures of queues, exact up to a cap. Nothing here reads more than about cap index entries of one kind,
--   starts below a floor, or reads a payload.
-- Parameters: project, names (of that project), ids (any project; one of the two is empty), cap, now.
-- Index: leasequeue_queue_name or leasequeue_queue_pkey, leasequeue_rank_place, leasequeue_floor_place;
--   leasequeue_ready_pkey (the fresh lane) and leasequeue_delayed_due from the floor on, leasequeue_ready_expires,
--   leasequeue_dead_died, leasequeue_record_pkey, leasequeue_claim_deadline (newest first, down to the floor),
--   leasequeue_job_pkey (the heads), leasequeue_stat_sample.
-- Pages: 40 + 0.2 a row
-- Returns: counts of at most cap + 1, but all jobs of a claim count; then the newest sample, or nulls.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), queues AS MATERIALIZED (
    SELECT * FROM leasequeue_queue WHERE project = %(project)s AND name = ANY (%(names)s::text[])
    UNION ALL
    SELECT * FROM leasequeue_queue WHERE id = ANY (%(ids)s::bigint[])
), {lanes(queues)}, floors AS MATERIALIZED (
    SELECT queues.id, k.kind, {since(queues.id, k.kind)} AS since
    FROM queues, (VALUES ({floor.DELAYED}), ({floor.CLAIM})) AS k(kind)
)
SELECT queues.id AS queue_id, queues.project, queues.name AS queue, queues.type, queues.paused_at, queues.dead_lettered,
    r.n AS ready, e.n AS expired, d.n AS delayed, d.due, h.n AS waiting, l.n AS leased, l.over, l.read AS claims_read,
    g.n AS dead, g.read AS dead_read, c.n AS records, o.oldest AS oldest_at,
    'epoch'::timestamptz + NULLIF({floor(queues.id, {floor.CLAIMED}, 0)}, 0) * interval '1 us' AS claimed_at,
    s.sampled_at, s.ready, s.delayed, s.leased, s.dead, s.records
FROM queues CROSS JOIN clock
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM lanes CROSS JOIN LATERAL (
            SELECT FROM leasequeue_ready r WHERE r.queue_id = queues.id AND r.rank = lanes.rank AND r.lane = lanes.lane
                AND r.position >= lanes.low ORDER BY r.position LIMIT %(cap)s::int + 1) r
        WHERE lanes.id = queues.id LIMIT %(cap)s::int + 1) x
) r
CROSS JOIN LATERAL (
    SELECT min(j.created_at) AS oldest FROM lanes CROSS JOIN LATERAL (
        SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = queues.id AND r.rank = lanes.rank
            AND r.lane = lanes.lane
            AND r.position >= lanes.low ORDER BY r.position LIMIT 1) r
    CROSS JOIN LATERAL (SELECT j.created_at FROM leasequeue_job j WHERE j.seq = r.seq OFFSET 0) j
    WHERE lanes.id = queues.id
) o
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM leasequeue_ready r WHERE r.queue_id = queues.id AND r.expires_at IS NOT NULL
            AND r.expires_at <= clock.now
        ORDER BY r.expires_at LIMIT %(cap)s::int + 1) x
) e
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE x.available_at <= clock.now) AS due FROM (
        SELECT d.available_at FROM leasequeue_delayed d WHERE d.queue_id = queues.id
            AND d.available_at >= (SELECT since FROM floors WHERE floors.id = queues.id
                AND floors.kind = {floor.DELAYED})
            -- Behind that are jobs of workflows that start only if a failure before them is retried.
            AND d.available_at < {CUT_OFF}
        ORDER BY d.available_at LIMIT %(cap)s::int + 1) x
) d
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM leasequeue_delayed d WHERE d.queue_id = queues.id AND d.available_at >= {HELD}
            AND d.available_at < {CUT_OFF}
        ORDER BY d.available_at LIMIT %(cap)s::int + 1) x
) h
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(x.n), 0)::bigint AS n,
        COALESCE(sum(x.n) FILTER (WHERE x.deadline < clock.now), 0)::bigint AS over, count(*) AS read
    FROM (
        SELECT c.deadline, cardinality(c.seqs) AS n FROM leasequeue_claim c WHERE c.queue_id = queues.id
            AND c.deadline >= (SELECT since FROM floors WHERE floors.id = queues.id AND floors.kind = {floor.CLAIM})
        ORDER BY c.deadline DESC LIMIT %(cap)s::int + 1) x
) l
CROSS JOIN LATERAL (
    SELECT count(*) AS read, count(*) FILTER (WHERE x.in_place) AS n FROM (
        SELECT d.in_place FROM leasequeue_deadletter d WHERE d.queue_id = queues.id
        ORDER BY d.dead_at LIMIT %(cap)s::int + 1) x
) g
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM leasequeue_record o WHERE o.queue_id = queues.id ORDER BY o.seq LIMIT %(cap)s::int + 1) x
) c
LEFT JOIN LATERAL (
    SELECT * FROM leasequeue_queuestat s WHERE (s.queue_id, s.sampled_at) <= (queues.id, 'infinity')
    ORDER BY s.queue_id DESC, s.sampled_at DESC LIMIT 1) s ON s.queue_id = queues.id
