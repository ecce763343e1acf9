-- Purpose: change how long the result of a job is kept: from now on if it has ended, from its end on while it lives.
-- Parameters: project, queue, seq or key (the other null), ttl (ms), now.
-- Index: leasequeue_job_pkey, leasequeue_job_key (leasequeue_keyed), leasequeue_ready_pkey, leasequeue_delayed_pkey,
--   leasequeue_deadletter_pkey, leasequeue_jobresult_pkey, leasequeue_record_pkey; where the job stands nowhere of
--   these, its queue's claims by leasequeue_claim_deadline from the floor on.
-- Pages: 90, and the live claims
-- Returns: seq and whether it has ended, null if it went elsewhere meanwhile (look again); no row when nothing is known
--   of it.
WITH queue AS MATERIALIZED (
    SELECT id, dedup_until, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), job AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.rank, COALESCE(j.position, j.seq) AS position, p.state, queue.now,
        queue.now + %(ttl)s::bigint * interval '1 ms' AS until
    FROM queue JOIN leasequeue_job j ON j.queue_id = queue.id
    CROSS JOIN LATERAL (
        SELECT {ENDED} AS state, r.expires_at, 1 AS deliveries FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT {READY}, NULL, r.deliveries FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT {DELAYED}, NULL, w.deliveries FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT {DEAD}, x.expires_at, 1 FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
        UNION ALL
        SELECT {RECORD}, NULL, 0 FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        UNION ALL
        SELECT {LEASED}, NULL, 1
        LIMIT 1) p
    WHERE j.seq = ANY (ARRAY(SELECT %(seq)s::bigint UNION ALL
            SELECT k.seq FROM leasequeue_keyed(ARRAY[%(key)s::text]) k))
        AND p.state <> {RECORD} AND (p.expires_at IS NULL OR p.expires_at > queue.now)
        AND (j.seq = %(seq)s::bigint OR queue.dedup_until <> 'claimed' OR p.deliveries = 0)
), ready AS (
    UPDATE leasequeue_ready r SET flags = r.flags | {RESULT_TTL}
    WHERE r.queue_id = (SELECT queue_id FROM job WHERE state = {READY}) AND r.rank = (SELECT rank FROM job)
        AND r.lane = (SELECT s.lane FROM job, leasequeue_ready_at(job.queue_id, job.rank, job.position) s)
        AND r.position = (SELECT position FROM job)
    RETURNING r.seq
), delayed AS (
    UPDATE leasequeue_delayed w SET flags = w.flags | {RESULT_TTL}
    WHERE w.seq = (SELECT seq FROM job WHERE state = {DELAYED}) RETURNING w.seq
), leased AS (
    UPDATE leasequeue_claim c SET flags = c.flags | {RESULT_TTL}
    WHERE c.queue_id = (SELECT queue_id FROM job WHERE state = {LEASED}) AND (SELECT seq FROM job) = ANY (c.seqs)
        AND c.deadline >= {since((SELECT queue_id FROM job), {floor.CLAIM})}
    RETURNING (SELECT seq FROM job) AS seq
), dead AS (
    UPDATE leasequeue_deadletter d SET expires_at = (SELECT until FROM job)
    WHERE d.seq = (SELECT seq FROM job WHERE state = {DEAD}) AND d.in_place
    RETURNING d.seq
), ended AS (
    UPDATE leasequeue_jobresult r SET expires_at = (SELECT until FROM job)
    WHERE r.seq = (SELECT seq FROM job WHERE state = {ENDED}) AND r.expires_at + interval '0' > (SELECT now FROM job)
    RETURNING r.seq
), live AS (
    UPDATE leasequeue_job SET result_ttl_ms = %(ttl)s::bigint WHERE seq = ANY (ARRAY(
        SELECT seq FROM ready UNION ALL SELECT seq FROM delayed UNION ALL SELECT seq FROM leased UNION ALL SELECT seq
        FROM dead))
    RETURNING seq
)
SELECT job.seq, CASE WHEN EXISTS (SELECT FROM live) OR EXISTS (SELECT
    FROM ended) THEN job.state IN ({DEAD}, {ENDED}) END FROM job
