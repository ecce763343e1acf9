-- Purpose: what holds these keys of a queue, after an enqueue met them; keys that need not be kept any more are set
--   free. A key is kept by a live job (dedup_until = claimed: until its first claim), and by a result until its time is
--   over (dedup_until = result_ttl); that of a unique job as long as that job has said.
-- Parameters: project, queue, keys, now.
-- Index: leasequeue_job_key, leasequeue_jobresult_pkey, leasequeue_deadletter_pkey, leasequeue_ready_pkey,
--   leasequeue_delayed_pkey, leasequeue_uniquekey_pkey.
-- Pages: 20 + 29 a row
-- Returns: a KeyVerdict (held, free now, over: remove the dead job past its time).
WITH queue AS MATERIALIZED (
    SELECT id, dedup_until, {now()} AS now FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), holders AS MATERIALIZED (
    SELECT j.key, j.seq, queue.id AS queue_id, p.state, CASE
        WHEN p.state = {DEAD} AND p.expires_at <= queue.now THEN {key.OVER}
        WHEN u.free_at IS NOT NULL THEN {key.FREE} * (u.free_at <= queue.now
            OR p.state = {ENDED} + {result.CANCELLED})::int
        WHEN u.until_start IS NOT NULL THEN {key.FREE} * (p.state = {DEAD} OR p.state >= {ENDED}
            OR u.until_start AND p.started)::int
        WHEN p.state >= {ENDED} THEN {key.FREE} * (queue.dedup_until <> 'result_ttl'
            OR p.state = {ENDED} + {result.CANCELLED} OR p.expires_at <= queue.now)::int
        WHEN queue.dedup_until = 'claimed' AND p.started THEN {key.FREE}
        ELSE {key.HELD} END AS verdict
    FROM queue JOIN leasequeue_job j ON j.key = ANY (%(keys)s::text[]) AND NOT j.generated AND j.queue_id = queue.id
    CROSS JOIN LATERAL (
        SELECT {ENDED} + r.state AS state, r.expires_at, true AS started FROM leasequeue_jobresult r WHERE r.seq = j.seq
        UNION ALL
        SELECT {DEAD}, d.expires_at, true FROM leasequeue_deadletter d WHERE d.seq = j.seq AND d.in_place
        UNION ALL
        SELECT {READY}, NULL, {has_started(r)} FROM leasequeue_ready_at(j.queue_id, j.rank,
            COALESCE(j.position, j.seq)) r
        UNION ALL
        SELECT {DELAYED}, NULL, {has_started(w)} FROM leasequeue_delayed w WHERE w.seq = j.seq
        UNION ALL
        SELECT {RECORD}, NULL, false FROM leasequeue_record o WHERE o.queue_id = j.queue_id AND o.seq = j.seq
        UNION ALL
        SELECT {LEASED}, NULL, true
        LIMIT 1
    ) p
    LEFT JOIN LATERAL (
        SELECT u.free_at, u.until_start FROM leasequeue_uniquekey u
        WHERE u.queue_id = queue.id AND u.key = j.key AND u.seq = j.seq OFFSET 0) u ON true
), freed AS (
    UPDATE leasequeue_job j SET key = NULL FROM holders
    WHERE j.seq = ANY (ARRAY(SELECT seq FROM holders WHERE verdict = {key.FREE})) AND holders.seq = j.seq
        AND j.key = holders.key
)
SELECT key, seq, state, verdict, queue_id FROM holders
