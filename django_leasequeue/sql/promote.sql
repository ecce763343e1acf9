-- Purpose: delayed jobs whose time has come become ready: the due ones only.
-- Parameters: queues (ids), size (jobs per queue), now, autocommit.
-- Index: leasequeue_job_delayed from the floor on, leasequeue_job_pkey, leasequeue_floor_place.
-- Returns: seq, queue id.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), q AS MATERIALIZED (
    SELECT q.id, q.requeue, q.leases_durable, 'epoch'::timestamptz + COALESCE(f.value, 0) * interval '1 us' AS since
    FROM leasequeue_queue q LEFT JOIN leasequeue_queuefloor f ON f.queue_id = q.id AND f.kind = 1 AND f.rank = 0
    WHERE q.id = ANY (%(queues)s::bigint[])
), d AS MATERIALIZED (
    SELECT d.* FROM q CROSS JOIN LATERAL (
        SELECT j.seq FROM leasequeue_job j
        WHERE j.queue_id = q.id AND j.state = 1 AND j.available_at >= q.since AND j.available_at <= (SELECT now FROM t)
        ORDER BY j.available_at LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) d
), r AS (
    UPDATE leasequeue_job j SET state = 0, available_at = NULL,
        position = CASE WHEN q.requeue = 'back' THEN nextval('leasequeue_job_seq_seq') ELSE j.position END
    FROM q WHERE j.seq = ANY (ARRAY(SELECT seq FROM d)) AND q.id = j.queue_id
    RETURNING j.seq, j.queue_id, j.rank, j.position, q.leases_durable
), floors AS (
    UPDATE leasequeue_queuefloor f SET value = LEAST(f.value, m.low), candidate = LEAST(f.candidate, m.low)
    FROM (SELECT queue_id, rank, min(position) AS low FROM r GROUP BY queue_id, rank) m
    WHERE f.queue_id = m.queue_id AND f.kind = 0 AND f.rank = m.rank AND (f.value > m.low OR f.candidate > m.low)
), wake AS MATERIALIZED (
    SELECT CASE WHEN pg_try_advisory_lock(1280657731, w.queue_id::int)
        THEN pg_advisory_unlock(1280657731, w.queue_id::int)::text
        ELSE pg_notify('leasequeue', 'q' || w.queue_id)::text END AS sent
    FROM (SELECT DISTINCT queue_id FROM r) w
)
SELECT r.seq, r.queue_id, (SELECT count(sent) FROM wake),
    (SELECT CASE WHEN %(autocommit)s::bool AND bool_and(NOT leases_durable)
        THEN set_config('synchronous_commit', 'off', true) END FROM r)
FROM r
