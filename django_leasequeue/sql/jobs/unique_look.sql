-- Purpose: who holds the keys of unique jobs, and whether it still may. With ``free`` (under the locks of unique_take) a job that
--   may not any more gives its key back where it stands on the job as well. A dead letter that was retried has been started.
-- Parameters: project, queue, keys, free, now.
-- Index: leasequeue_queue_name, leasequeue_uniquekey_pkey, leasequeue_job_pkey, leasequeue_jobresult_pkey,
--   leasequeue_deadletter_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey, leasequeue_record_pkey.
-- Pages: 20 + 30 a row
-- Returns: key, seq and state of its job (job state, or 10 + result state), and: 0 it holds the key and has not started, 1 it
--   holds the key, 2 the key is free. Keys that no job has taken have no row.
WITH q AS MATERIALIZED (
    SELECT id, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), k AS MATERIALIZED (
    SELECT u.key, j.seq, p.state, CASE
        WHEN u.free_at IS NOT NULL AND (u.free_at <= q.now OR p.state = 13) THEN 2
        WHEN u.free_at IS NULL AND (p.state = 3 OR p.state >= 10 OR u.until_start AND NOT p.waits) THEN 2
        WHEN p.waits THEN 0 ELSE 1 END AS verdict
    FROM q CROSS JOIN (SELECT DISTINCT key FROM unnest(%(keys)s::text[]) AS x(key)) x
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_uniquekey u WHERE u.queue_id = q.id AND u.key = x.key OFFSET 0) u
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq AND j.queue_id + 0 = q.id OFFSET 0) j
    CROSS JOIN LATERAL (
        SELECT 10 + r.state AS state, false AS waits FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT 3, false FROM leasequeue_deadletter d WHERE d.seq = j.seq AND d.in_place
        UNION ALL
        SELECT 0, r.deliveries = 0 AND r.flags & 8 = 0 FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT 1, w.deliveries = 0 AND w.flags & 8 = 0 FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT 4, false FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        UNION ALL
        SELECT 2, false
        LIMIT 1
    ) p
), freed AS (
    UPDATE leasequeue_job j SET key = NULL FROM k
    WHERE %(free)s::bool AND j.seq = ANY (ARRAY(SELECT seq FROM k WHERE verdict = 2)) AND k.seq = j.seq AND j.key = k.key
)
SELECT key, seq, state, verdict FROM k
