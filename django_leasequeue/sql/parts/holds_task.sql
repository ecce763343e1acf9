-- holds_task(queue): whether a task stands among the first and the last ready jobs of a queue: only tasks give their
-- jobs a name. Dead letters that wait in a topic of their own do not count.
EXISTS (SELECT FROM (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = {queue}) k
    CROSS JOIN (VALUES ({AGAIN}), ({FRESH})) AS l(lane) CROSS JOIN LATERAL (
        SELECT CASE WHEN l.lane = {FRESH} THEN {floor({queue}, {floor.READY}, k.rank)} ELSE 0 END AS low OFFSET 0) f
            CROSS JOIN LATERAL (
        (SELECT r.seq, r.flags FROM leasequeue_ready r WHERE r.queue_id = {queue} AND r.rank = k.rank
            AND r.lane = l.lane
            AND r.position >= f.low ORDER BY r.position LIMIT 20)
        UNION ALL
        (SELECT r.seq, r.flags FROM leasequeue_ready r WHERE r.queue_id = {queue} AND r.rank = k.rank
            AND r.lane = l.lane
            AND r.position >= f.low ORDER BY r.position DESC LIMIT 20)) r
    CROSS JOIN LATERAL (SELECT j.name FROM leasequeue_job j WHERE j.seq = r.seq OFFSET 0) j
    WHERE j.name IS NOT NULL AND r.flags & {DEAD_LETTER} = 0)
