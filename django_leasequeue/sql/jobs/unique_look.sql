-- Purpose: the holders of unique keys, and whether they still hold them. With ``free`` (under the locks of unique_take)
--   a job that may not any more gives its key back where it stands on the job as well. A dead letter that was retried
--   has its key until it starts again, but is not one that never started.
-- Parameters: project, queue, keys, free, now.
-- Index: leasequeue_queue_name, leasequeue_uniquekey_pkey, leasequeue_job_pkey, leasequeue_jobresult_pkey,
--   leasequeue_deadletter_pkey, leasequeue_ready_pkey, leasequeue_delayed_pkey, leasequeue_record_pkey.
-- Pages: 20 + 30 a row
-- Returns: key, seq and state of its job (job state, or ENDED + result state), and a KeyVerdict: waits (it holds the
--   key and has not started), held, or free. Keys that no job has taken have no row.
WITH queue AS MATERIALIZED (
    SELECT id, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), holders AS MATERIALIZED (
    SELECT u.key, j.seq, p.state, CASE
        WHEN u.free_at IS NOT NULL AND (u.free_at <= queue.now
            OR p.state = {ENDED} + {result.CANCELLED}) THEN {key.FREE}
        WHEN u.free_at IS NULL AND (p.state = {DEAD} OR p.state >= {ENDED} OR u.until_start AND p.started)
            THEN {key.FREE}
        WHEN p.waits THEN {key.WAITS} ELSE {key.HELD} END AS verdict
    FROM queue CROSS JOIN (SELECT DISTINCT key FROM unnest(%(keys)s::text[]) AS given(key)) asked
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_uniquekey u WHERE u.queue_id = queue.id
        AND u.key = asked.key OFFSET 0) u
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq AND j.queue_id + 0 = queue.id OFFSET 0) j
    CROSS JOIN LATERAL (
        SELECT {ENDED} + r.state AS state, false AS waits, true AS started FROM leasequeue_jobresult r
        WHERE r.seq = j.seq
        UNION ALL
        SELECT {DEAD}, false, true FROM leasequeue_deadletter d WHERE d.seq = j.seq AND d.in_place
        UNION ALL
        SELECT {READY}, r.deliveries = 0 AND r.flags & {FAILED} = 0, {has_started(r)}
        FROM leasequeue_ready_at(j.queue_id, j.rank, COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT {DELAYED}, w.deliveries = 0 AND w.flags & {FAILED} = 0, {has_started(w)} FROM leasequeue_delayed w
        WHERE w.seq = j.seq
        UNION ALL
        SELECT {RECORD}, false, false FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        UNION ALL
        SELECT {LEASED}, false, true
        LIMIT 1
    ) p
), freed AS (
    UPDATE leasequeue_job j SET key = NULL FROM holders
    WHERE %(free)s::bool AND j.seq = ANY (ARRAY(SELECT seq FROM holders WHERE verdict = {key.FREE}))
        AND holders.seq = j.seq
        AND j.key = holders.key
)
SELECT key, seq, state, verdict FROM holders
