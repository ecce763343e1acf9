-- Purpose: change how long the end of a job is remembered: from now on where it has ended, from its end on while it lives.
-- Parameters: project, queue, seq or key (the other null), ttl (ms), now.
-- Index: leasequeue_job_pkey, leasequeue_job_key (leasequeue_keyed), leasequeue_ready_pkey, leasequeue_delayed_pkey, leasequeue_deadletter_pkey,
--   leasequeue_jobresult_pkey, leasequeue_record_pkey; where the job stands nowhere of these, its queue's claims by
--   leasequeue_claim_deadline from the floor on.
-- Pages: 90, and the live claims
-- Returns: seq and whether it has ended, null if it went elsewhere meanwhile (look again); no row when nothing is known of it.
WITH q AS MATERIALIZED (
    SELECT id, dedup_until, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), j AS MATERIALIZED (
    SELECT j.seq, j.queue_id, j.rank, COALESCE(j.position, j.seq) AS position, p.state, q.now,
        q.now + %(ttl)s::bigint * interval '1 ms' AS until
    FROM q JOIN leasequeue_job j ON j.queue_id = q.id
    CROSS JOIN LATERAL (
        SELECT 10 AS state, r.expires_at, 1 AS deliveries FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT 0, NULL, r.deliveries FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT 1, NULL, w.deliveries FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT 3, x.expires_at, 1 FROM leasequeue_deadletter x WHERE x.seq = j.seq AND x.in_place
        UNION ALL
        SELECT 4, NULL, 0 FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        UNION ALL
        SELECT 2, NULL, 1
        LIMIT 1) p
    WHERE j.seq = ANY (ARRAY(SELECT %(seq)s::bigint UNION ALL
            SELECT k.seq FROM leasequeue_keyed(ARRAY[%(key)s::text]) k))
        AND p.state <> 4 AND (p.expires_at IS NULL OR p.expires_at > q.now)
        AND (j.seq = %(seq)s::bigint OR q.dedup_until <> 'claimed' OR p.deliveries = 0)
), ready AS (
    UPDATE leasequeue_ready r SET flags = r.flags | 2
    WHERE r.queue_id = (SELECT queue_id FROM j WHERE state = 0) AND r.rank = (SELECT rank FROM j)
        AND r.lane = (SELECT s.lane FROM j, leasequeue_ready_at(j.queue_id, j.rank, j.position) s)
        AND r.position = (SELECT position FROM j)
    RETURNING r.seq
), delayed AS (
    UPDATE leasequeue_delayed w SET flags = w.flags | 2 WHERE w.seq = (SELECT seq FROM j WHERE state = 1) RETURNING w.seq
), leased AS (
    UPDATE leasequeue_claim c SET flags = c.flags | 2
    WHERE c.queue_id = (SELECT queue_id FROM j WHERE state = 2) AND (SELECT seq FROM j) = ANY (c.seqs)
        AND c.deadline >= 'epoch'::timestamptz + interval '1 us' * {floor((SELECT queue_id FROM j), 2, 0)}
    RETURNING (SELECT seq FROM j) AS seq
), dead AS (
    UPDATE leasequeue_deadletter d SET expires_at = (SELECT until FROM j)
    WHERE d.seq = (SELECT seq FROM j WHERE state = 3) AND d.in_place
    RETURNING d.seq
), ended AS (
    UPDATE leasequeue_jobresult r SET expires_at = (SELECT until FROM j)
    WHERE r.seq = (SELECT seq FROM j WHERE state = 10) AND r.expires_at + interval '0' > (SELECT now FROM j) RETURNING r.seq
), live AS (
    UPDATE leasequeue_job SET result_ttl_ms = %(ttl)s::bigint WHERE seq = ANY (ARRAY(
        SELECT seq FROM ready UNION ALL SELECT seq FROM delayed UNION ALL SELECT seq FROM leased UNION ALL SELECT seq FROM dead))
    RETURNING seq
)
SELECT j.seq, CASE WHEN EXISTS (SELECT FROM live) OR EXISTS (SELECT FROM ended) THEN j.state IN (3, 10) END FROM j
