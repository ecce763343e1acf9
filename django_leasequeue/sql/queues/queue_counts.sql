-- Purpose: figures of queues, exact up to a cap. Nothing here reads more than about cap index entries of one kind, starts
--   below a floor, or reads a payload.
-- Parameters: project, names (of that project), ids (any project; one of the two is empty), cap, now.
-- Index: leasequeue_queue_name or leasequeue_queue_pkey, leasequeue_rank_place, leasequeue_floor_place; leasequeue_ready_pkey (the
--   fresh lane) and leasequeue_delayed_due from the floor on, leasequeue_ready_expires, leasequeue_dead_died,
--   leasequeue_record_pkey, leasequeue_claim_deadline (newest first, down to the floor), leasequeue_job_pkey (the heads),
--   leasequeue_stat_sample.
-- Pages: 40 + 0.2 a row
-- Returns: queue id, project, name, type, paused_at, dead_lettered; ready, expired ones among them (by message TTL),
--   delayed, due ones among them, waiting ones among them (limits and workflows hold them), leased, over ones among them (past the deadline), claims that were read, dead in place, dead
--   dead letters that were read, records, oldest ready; then the newest sample: when, ready, delayed, leased, dead, records, or
--   nulls. Each count is at most cap + 1, but all jobs of a claim count.
WITH t AS MATERIALIZED (SELECT {now()} AS now), q AS MATERIALIZED (
    SELECT * FROM leasequeue_queue WHERE project = %(project)s AND name = ANY (%(names)s::text[])
    UNION ALL
    SELECT * FROM leasequeue_queue WHERE id = ANY (%(ids)s::bigint[])
), f AS MATERIALIZED (
    SELECT q.id, k.rank, l.lane, CASE WHEN l.lane = 1 THEN 0 ELSE {floor(q.id, 0, k.rank)} END AS low
    FROM q CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id) k,
        (VALUES (1), (2)) AS l(lane)
), b AS MATERIALIZED (
    SELECT q.id, k.kind, 'epoch'::timestamptz + interval '1 us' * {floor(q.id, k.kind, 0)} AS since
    FROM q, (VALUES (1), (2)) AS k(kind)
)
SELECT q.id, q.project, q.name, q.type, q.paused_at, q.dead_lettered, r.n, e.n, d.n, d.due, h.n, l.n, l.over, l.read,
    g.n, g.read, c.n, o.oldest, s.sampled_at, s.ready, s.delayed, s.leased, s.dead, s.records
FROM q CROSS JOIN t
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM f CROSS JOIN LATERAL (
            SELECT FROM leasequeue_ready r WHERE r.queue_id = q.id AND r.rank = f.rank AND r.lane = f.lane
                AND r.position >= f.low ORDER BY r.position LIMIT %(cap)s::int + 1) r
        WHERE f.id = q.id LIMIT %(cap)s::int + 1) x
) r
CROSS JOIN LATERAL (
    SELECT min(j.created_at) AS oldest FROM f CROSS JOIN LATERAL (
        SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = q.id AND r.rank = f.rank AND r.lane = f.lane
            AND r.position >= f.low ORDER BY r.position LIMIT 1) r
    CROSS JOIN LATERAL (SELECT j.created_at FROM leasequeue_job j WHERE j.seq = r.seq OFFSET 0) j
    WHERE f.id = q.id
) o
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM leasequeue_ready r WHERE r.queue_id = q.id AND r.expires_at IS NOT NULL AND r.expires_at <= t.now
        ORDER BY r.expires_at LIMIT %(cap)s::int + 1) x
) e
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE x.available_at <= t.now) AS due FROM (
        SELECT d.available_at FROM leasequeue_delayed d WHERE d.queue_id = q.id
            AND d.available_at >= (SELECT since FROM b WHERE b.id = q.id AND b.kind = 1)
            -- Behind that are jobs of workflows that start only if a failure before them is retried.
            AND d.available_at < '9001-01-01 00:00+00'
        ORDER BY d.available_at LIMIT %(cap)s::int + 1) x
) d
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM leasequeue_delayed d WHERE d.queue_id = q.id AND d.available_at >= '9000-01-01 00:00+00'
            AND d.available_at < '9001-01-01 00:00+00'
        ORDER BY d.available_at LIMIT %(cap)s::int + 1) x
) h
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(x.n), 0)::bigint AS n, COALESCE(sum(x.n) FILTER (WHERE x.deadline < t.now), 0)::bigint AS over,
        count(*) AS read
    FROM (
        SELECT c.deadline, cardinality(c.seqs) AS n FROM leasequeue_claim c WHERE c.queue_id = q.id
            AND c.deadline >= (SELECT since FROM b WHERE b.id = q.id AND b.kind = 2)
        ORDER BY c.deadline DESC LIMIT %(cap)s::int + 1) x
) l
CROSS JOIN LATERAL (
    SELECT count(*) AS read, count(*) FILTER (WHERE x.in_place) AS n FROM (
        SELECT d.in_place FROM leasequeue_deadletter d WHERE d.queue_id = q.id
        ORDER BY d.dead_at LIMIT %(cap)s::int + 1) x
) g
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM leasequeue_record o WHERE o.queue_id = q.id ORDER BY o.seq LIMIT %(cap)s::int + 1) x
) c
LEFT JOIN LATERAL (
    SELECT * FROM leasequeue_queuestat s WHERE (s.queue_id, s.sampled_at) <= (q.id, 'infinity')
    ORDER BY s.queue_id DESC, s.sampled_at DESC LIMIT 1) s ON s.queue_id = q.id
