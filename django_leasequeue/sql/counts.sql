-- Purpose: figures of one queue, exact up to a cap; nothing here reads more than cap rows of one kind.
-- Parameters: project, queue (name), cap, now.
-- Index: leasequeue_job_ready, leasequeue_job_delayed, leasequeue_job_dead, leasequeue_job_record,
--   leasequeue_claim_deadline, leasequeue_job_pkey, leasequeue_stat_sample.
-- Returns: ready (with expired leases and due delayed jobs, whether swept or not), delayed, in flight, dead, records,
--   dead_lettered, oldest ready; each count at most cap + 1; then the newest sample (ready, delayed, leased, dead,
--   records), or nulls.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT id, dead_lettered FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), leased AS MATERIALIZED (
    SELECT j.deadline < t.now AS over FROM t, q CROSS JOIN LATERAL (
        SELECT j.deadline FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS s(seq)
        JOIN leasequeue_job j ON j.seq = s.seq AND j.claim = c.id AND j.state = 2
        WHERE c.queue_id = q.id LIMIT %(cap)s::int + 1) j
), delayed AS MATERIALIZED (
    SELECT j.available_at <= t.now AS due FROM t, q CROSS JOIN LATERAL (
        SELECT available_at FROM leasequeue_job WHERE queue_id = q.id AND state = 1 ORDER BY available_at
        LIMIT %(cap)s::int + 1) j
)
SELECT
    (SELECT count(*) FROM (SELECT FROM leasequeue_job j, t WHERE j.queue_id = q.id AND j.state = 0
        AND (j.expires_at IS NULL OR j.expires_at > t.now) LIMIT %(cap)s::int + 1) x)
        + (SELECT count(*) FROM leased WHERE over) + (SELECT count(*) FROM delayed WHERE due),
    (SELECT count(*) FROM delayed WHERE NOT due),
    (SELECT count(*) FROM leased WHERE NOT over),
    (SELECT count(*) FROM (SELECT FROM leasequeue_job WHERE queue_id = q.id AND dead_at IS NOT NULL AND state = 3
        LIMIT %(cap)s::int + 1) x),
    (SELECT count(*) FROM (SELECT FROM leasequeue_job WHERE queue_id = q.id AND state = 4 LIMIT %(cap)s::int + 1) x),
    q.dead_lettered,
    (SELECT min(o.created_at) FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
        SELECT created_at FROM leasequeue_job j WHERE j.queue_id = q.id AND j.rank = f.rank AND j.state = 0
            AND j.position >= f.value ORDER BY j.position LIMIT 1) o WHERE f.queue_id = q.id AND f.kind = 0),
    s.ready, s.delayed, s.leased, s.dead, s.records
FROM q LEFT JOIN LATERAL (
    SELECT * FROM leasequeue_queuestat WHERE queue_id = q.id ORDER BY sampled_at DESC LIMIT 1) s ON true
