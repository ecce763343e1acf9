-- dead_place(queue, seq, here, position): where a dead letter d of the job j stands: in place (dead), a record or ready
-- in another topic. One that is locked is nowhere.
LATERAL (
    SELECT * FROM (SELECT l.ctid AS place, {DEAD} AS state FROM leasequeue_deadletter l
        WHERE d.in_place AND l.seq = {seq} AND {here} FOR UPDATE SKIP LOCKED) a
    UNION ALL
    SELECT * FROM (SELECT o.ctid, {RECORD} FROM leasequeue_record o
        WHERE NOT d.in_place AND o.queue_id = {queue} AND o.seq = {seq} FOR UPDATE SKIP LOCKED) b
    UNION ALL
    SELECT c.* FROM (VALUES ({FRESH}::smallint), ({AGAIN}::smallint)) AS v(lane) CROSS JOIN LATERAL (
        SELECT r.ctid, {READY} FROM leasequeue_ready r WHERE NOT d.in_place AND r.queue_id = {queue} AND r.rank = j.rank
            AND r.lane = v.lane AND r.position = {position} AND r.seq = {seq} FOR UPDATE SKIP LOCKED) c
    LIMIT 1) p
