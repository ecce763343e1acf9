-- lanes(queues): lanes, where ready jobs of the CTE queues stand: id, rank, lane, the position worth reading from.
lanes AS MATERIALIZED (
    SELECT {queues}.id, k.rank, l.lane, CASE WHEN l.lane = {AGAIN} THEN 0
        ELSE {floor({queues}.id, {floor.READY}, k.rank)} END AS low
    FROM {queues} CROSS JOIN LATERAL (
        SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = {queues}.id) k
    CROSS JOIN (VALUES ({AGAIN}), ({FRESH})) AS l(lane)
)
