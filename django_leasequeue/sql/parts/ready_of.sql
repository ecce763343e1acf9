-- ready_of(more): the numbers of a queue's ready jobs, each lane of a rank by itself, the fresh one from the floor on.
SELECT r.seq FROM (SELECT DISTINCT rank FROM leasequeue_queuerank WHERE queue_id = %(queue)s::bigint) k
CROSS JOIN (VALUES ({AGAIN}), ({FRESH})) AS l(lane) CROSS JOIN LATERAL (
    SELECT r.seq FROM leasequeue_ready r
    WHERE r.queue_id = %(queue)s::bigint AND r.rank = k.rank AND r.lane = l.lane
        AND r.position >= CASE WHEN l.lane = {FRESH} THEN {floor(%(queue)s::bigint, {floor.READY}, k.rank)}
            ELSE 0 END {more}) r
