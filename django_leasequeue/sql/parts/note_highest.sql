-- note_highest(removed): store the highest removed number of each queue (queue_id, high, now).
INSERT INTO leasequeue_queuefloor (queue_id, kind, rank, value, made_at)
SELECT h.queue_id, {floor.HEAD}, 0, h.high, h.now FROM ({removed}) h WHERE h.high > {floor(h.queue_id, {floor.HEAD}, 0)}
