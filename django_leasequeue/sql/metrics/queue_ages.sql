-- Purpose: ages of queues: their oldest ready job, their oldest overdue lease, their floors.
-- Parameters: queues (ids), now.
-- Index: leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey and leasequeue_claim_deadline from the
--   floor on: one entry a rank and lane.
-- Pages: 20 + 30 a row
-- Returns: seconds, or nulls: of ready jobs only the next one of each rank and lane is looked at.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), queues AS MATERIALIZED (
    SELECT q.id, q.floors_mended, {since(q.id, {floor.CLAIM})} AS since
    FROM leasequeue_queue q WHERE q.id = ANY (%(queues)s::bigint[])
), {lanes(queues)}
SELECT queues.id, GREATEST(extract(epoch FROM clock.now - r.at), 0)::float8 AS ready,
    extract(epoch FROM clock.now - c.at)::float8 AS overdue,
    GREATEST(extract(epoch FROM clock.now - m.at), 0)::float8 AS floor, queues.floors_mended AS mended
FROM queues CROSS JOIN clock
CROSS JOIN LATERAL (
    SELECT min(r.ready_at) AS at FROM lanes CROSS JOIN LATERAL (
        SELECT r.ready_at FROM leasequeue_ready r WHERE r.queue_id = queues.id AND r.rank = lanes.rank
            AND r.lane = lanes.lane
            AND r.position >= lanes.low ORDER BY r.position LIMIT 1) r
    WHERE lanes.id = queues.id
) r
LEFT JOIN LATERAL (
    SELECT c.deadline AS at FROM leasequeue_claim c WHERE c.queue_id = queues.id AND c.deadline >= queues.since
        AND c.deadline < clock.now ORDER BY c.deadline LIMIT 1) c ON true
CROSS JOIN LATERAL (
    SELECT max(f.at) AS at FROM (VALUES ({floor.DELAYED}), ({floor.CLAIM})) AS k(kind) CROSS JOIN LATERAL (
        SELECT f.made_at AS at FROM leasequeue_queuefloor f WHERE f.queue_id = queues.id AND f.kind = k.kind
            AND f.rank = 0
        ORDER BY f.value DESC LIMIT 1) f) m
ORDER BY queues.id
