-- floor(queue, kind, rank): a queue's floor: nothing stands below it. By kind: 0 positions of ready jobs of a rank, 1 times of delayed
-- jobs and 2 of leases (µs since 1970), 3 the highest number that was removed. Index: leasequeue_floor_place.
COALESCE((SELECT f.value FROM leasequeue_queuefloor f WHERE f.queue_id = {queue} AND f.kind = {kind} AND f.rank = {rank}
    ORDER BY f.value DESC LIMIT 1), 0)
