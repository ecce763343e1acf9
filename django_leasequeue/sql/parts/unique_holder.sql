-- unique_holder(queue, unique_key, now): the job that took a unique key: key, seq, its state, whether it still holds
-- the key (KeyVerdict), and its own key.
SELECT u.key, j.seq, p.state, CASE
    WHEN u.free_at IS NOT NULL AND (u.free_at <= {now}
        OR p.state = {ENDED} + {result.CANCELLED}) THEN {key.FREE}
    WHEN u.free_at IS NULL AND (p.state = {DEAD} OR p.state >= {ENDED} OR u.until_start AND p.started)
        THEN {key.FREE}
    WHEN p.waits THEN {key.WAITS} ELSE {key.HELD} END AS verdict, j.key AS id
FROM (SELECT * FROM leasequeue_uniquekey u WHERE u.queue_id = {queue} AND u.key = {unique_key} OFFSET 0) u
CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = u.seq AND j.queue_id + 0 = {queue} OFFSET 0) j
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
