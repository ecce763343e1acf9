-- floor(queue, kind, rank): a queue's floor: nothing stands below it. By kind: READY positions of ready jobs of a rank,
-- DELAYED times of delayed jobs and CLAIM of leases (µs since 1970), HEAD the highest number that was removed;
-- CLAIMED bounds nothing: when jobs were asked for last (µs since 1970, a minute late at most).
-- Index: leasequeue_floor_place.
COALESCE((SELECT f.value FROM leasequeue_queuefloor f WHERE f.queue_id = {queue} AND f.kind = {kind} AND f.rank = {rank}
    ORDER BY f.value DESC LIMIT 1), 0)
