-- Purpose: how far queues lag behind: their oldest ready job, the expired lease that no reaper has ended, their floors.
-- Parameters: queues (ids), now.
-- Index: leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey and leasequeue_claim_deadline from the floor on: one
--   entry a rank and lane.
-- Pages: 20 + 30 a row
-- Returns: queue id, seconds since the first of the ready jobs (of each rank and lane the next one) became ready, seconds since the
--   first lease that is over ended, seconds since the floors that rise with the time were raised last (nulls where there is none),
--   floors that stood too high and were lowered.
WITH t AS MATERIALIZED (SELECT {now()} AS now), q AS MATERIALIZED (
    SELECT q.id, q.floors_mended, 'epoch'::timestamptz + interval '1 us' * {floor(q.id, 2, 0)} AS since
    FROM leasequeue_queue q WHERE q.id = ANY (%(queues)s::bigint[])
), f AS MATERIALIZED (
    SELECT q.id, k.rank, l.lane, CASE WHEN l.lane = 1 THEN 0 ELSE {floor(q.id, 0, k.rank)} END AS low
    FROM q CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id) k,
        (VALUES (1), (2)) AS l(lane)
)
SELECT q.id, GREATEST(extract(epoch FROM t.now - r.at), 0)::float8, extract(epoch FROM t.now - c.at)::float8,
    GREATEST(extract(epoch FROM t.now - m.at), 0)::float8, q.floors_mended
FROM q CROSS JOIN t
CROSS JOIN LATERAL (
    SELECT min(r.ready_at) AS at FROM f CROSS JOIN LATERAL (
        SELECT r.ready_at FROM leasequeue_ready r WHERE r.queue_id = q.id AND r.rank = f.rank AND r.lane = f.lane
            AND r.position >= f.low ORDER BY r.position LIMIT 1) r
    WHERE f.id = q.id
) r
LEFT JOIN LATERAL (
    SELECT c.deadline AS at FROM leasequeue_claim c WHERE c.queue_id = q.id AND c.deadline >= q.since
        AND c.deadline < t.now ORDER BY c.deadline LIMIT 1) c ON true
CROSS JOIN LATERAL (
    SELECT max(f.at) AS at FROM (VALUES (1), (2)) AS k(kind) CROSS JOIN LATERAL (
        SELECT f.made_at AS at FROM leasequeue_queuefloor f WHERE f.queue_id = q.id AND f.kind = k.kind AND f.rank = 0
        ORDER BY f.value DESC LIMIT 1) f) m
ORDER BY q.id
