-- Purpose: figures of queues, exact up to a cap. Nothing here reads more than about cap index entries of one kind, starts
--   below a floor, or reads a payload.
-- Parameters: project, names (of that project), ids (any project; one of the two is empty), cap, now.
-- Index: leasequeue_queue_name or leasequeue_queue_pkey; leasequeue_job_ready and leasequeue_job_delayed from the floor on,
--   leasequeue_job_dead, leasequeue_job_record, leasequeue_job_expires, leasequeue_claim_deadline (newest first, down to the floor),
--   leasequeue_job_pkey, leasequeue_stat_sample.
-- Returns: queue id, project, name, type, paused_at, dead_lettered; ready, expired ones among them (by message TTL),
--   delayed, due ones among them, leased, over ones among them (past the deadline), jobs of claims that were read, dead,
--   dead letters that were read, records, oldest ready; then the newest sample: when, ready, delayed, leased, dead,
--   records, or nulls. Each count is at most cap + 1, what claims hold at most 2 * cap + 1.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT * FROM leasequeue_queue WHERE project = %(project)s AND name = ANY (%(names)s::text[])
    UNION ALL
    SELECT * FROM leasequeue_queue WHERE id = ANY (%(ids)s::bigint[])
)
SELECT q.id, q.project, q.name, q.type, q.paused_at, q.dead_lettered, r.n, e.n, d.n, d.due, l.n, l.over, k.read,
    g.n, g.read, c.n, o.oldest, s.sampled_at, s.ready, s.delayed, s.leased, s.dead, s.records
FROM q CROSS JOIN t
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
            SELECT FROM leasequeue_job j WHERE j.queue_id = q.id AND j.rank = f.rank AND j.state = 0
                AND j.position >= f.value ORDER BY j.position LIMIT %(cap)s::int + 1) j
        WHERE f.queue_id = q.id AND f.kind = 0 LIMIT %(cap)s::int + 1) x
) r
CROSS JOIN LATERAL (
    SELECT min(j.created_at) AS oldest FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
        SELECT j.created_at FROM leasequeue_job j WHERE j.queue_id = q.id AND j.rank = f.rank AND j.state = 0
            AND j.position >= f.value ORDER BY j.position LIMIT 1) j
    WHERE f.queue_id = q.id AND f.kind = 0
) o
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.state = 0) AS n FROM (
        SELECT j.state FROM leasequeue_job j WHERE j.queue_id = q.id AND j.expires_at IS NOT NULL AND NOT j.state = 2
            AND j.expires_at <= t.now ORDER BY j.expires_at LIMIT %(cap)s::int + 1) x
) e
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE x.available_at <= t.now) AS due FROM (
        SELECT j.available_at FROM leasequeue_job j WHERE j.queue_id = q.id AND j.state = 1
            AND j.available_at >= COALESCE((SELECT 'epoch'::timestamptz + f.value * interval '1 us'
                FROM leasequeue_queuefloor f WHERE f.queue_id = q.id AND f.kind = 1 AND f.rank = 0), '-infinity')
        ORDER BY j.available_at LIMIT %(cap)s::int + 1) x
) d
CROSS JOIN LATERAL (
    SELECT count(*) AS read, array_agg(x.seq) AS seqs FROM (
        SELECT u.seq FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
        WHERE c.queue_id = q.id
            AND c.deadline >= COALESCE((SELECT 'epoch'::timestamptz + f.value * interval '1 us'
                FROM leasequeue_queuefloor f WHERE f.queue_id = q.id AND f.kind = 2 AND f.rank = 0), '-infinity')
        ORDER BY c.deadline DESC LIMIT 2 * %(cap)s::int + 1) x
) k
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE j.deadline < t.now) AS over FROM leasequeue_job j
    WHERE j.seq = ANY (k.seqs) AND j.queue_id = q.id AND j.state = 2
) l
CROSS JOIN LATERAL (
    SELECT count(*) AS read, count(*) FILTER (WHERE x.state = 3) AS n FROM (
        SELECT j.state FROM leasequeue_job j WHERE j.queue_id = q.id AND j.dead_at IS NOT NULL LIMIT %(cap)s::int + 1) x
) g
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM leasequeue_job j WHERE j.queue_id = q.id AND j.state = 4 LIMIT %(cap)s::int + 1) x
) c
LEFT JOIN LATERAL (
    SELECT * FROM leasequeue_queuestat s WHERE s.queue_id = q.id ORDER BY s.sampled_at DESC LIMIT 1) s ON true
