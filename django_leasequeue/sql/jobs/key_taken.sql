-- Purpose: what holds these keys of a queue, after an enqueue met them; keys that need not be kept any more are set free.
--   A key is kept by a live job (dedup_until = claimed: until its first claim), and by a result until its time is over
--   (dedup_until = result_ttl); that of a unique job as long as that job has said.
-- Parameters: project, queue, keys, now.
-- Index: leasequeue_job_key, leasequeue_jobresult_pkey, leasequeue_deadletter_pkey, leasequeue_ready_pkey,
--   leasequeue_delayed_pkey, leasequeue_uniquekey_pkey.
-- Pages: 20 + 29 a row
-- Returns: key, seq and state of its job (job state, or 10 + result state), what to do: 0 it is a duplicate, 1 the key is
--   free now, 2 a dead job past its time holds it (remove that one); then the queue's id.
WITH q AS MATERIALIZED (
    SELECT id, dedup_until, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), k AS MATERIALIZED (
    SELECT j.key, j.seq, q.id AS queue_id, p.state, CASE
        WHEN p.state = 3 AND p.expires_at <= q.now THEN 2
        WHEN u.free_at IS NOT NULL THEN (u.free_at <= q.now OR p.state = 13)::int
        WHEN u.until_start IS NOT NULL THEN (p.state = 3 OR p.state >= 10 OR u.until_start AND p.started)::int
        WHEN p.state >= 10 THEN (q.dedup_until <> 'result_ttl' OR p.state = 13 OR p.expires_at <= q.now)::int
        WHEN q.dedup_until = 'claimed' AND p.started THEN 1
        ELSE 0 END AS verdict
    FROM q JOIN leasequeue_job j ON j.key = ANY (%(keys)s::text[]) AND NOT j.generated AND j.queue_id = q.id
    CROSS JOIN LATERAL (
        SELECT 10 + r.state AS state, r.expires_at, true AS started FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT 3, d.expires_at, true FROM leasequeue_deadletter d WHERE d.seq = j.seq AND d.in_place
        UNION ALL
        SELECT 0, NULL, r.deliveries > 0 FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT 1, NULL, w.deliveries > 0 FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT 4, NULL, false FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        UNION ALL
        SELECT 2, NULL, true
        LIMIT 1
    ) p
    LEFT JOIN LATERAL (
        SELECT u.free_at, u.until_start FROM leasequeue_uniquekey u
        WHERE u.queue_id = q.id AND u.key = j.key AND u.seq = j.seq OFFSET 0) u ON true
), freed AS (
    UPDATE leasequeue_job j SET key = NULL FROM k
    WHERE j.seq = ANY (ARRAY(SELECT seq FROM k WHERE verdict = 1)) AND k.seq = j.seq AND j.key = k.key
)
SELECT key, seq, state, verdict, queue_id FROM k
