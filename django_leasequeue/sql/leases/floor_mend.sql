-- Purpose: lower floors above a waiting job, which no claim would find. Each is lowered to the lowest live
--   value, and the queue counts it.
-- Parameters: queues (ids; null: all).
-- Index: leasequeue_floor_place; leasequeue_ready_pkey (its fresh lane), leasequeue_delayed_due and
--   leasequeue_claim_deadline from their beginning: one entry a floor, and what a held snapshot keeps of dead entries
--   below it.
-- Pages: 60 + 10 a row
WITH floors AS MATERIALIZED (
    SELECT f.queue_id, f.kind, f.rank, max(f.value) AS value FROM leasequeue_queuefloor f
    WHERE f.kind IN ({floor.READY}, {floor.DELAYED}, {floor.CLAIM})
        AND (%(queues)s::bigint[] IS NULL OR f.queue_id = ANY (%(queues)s::bigint[]))
    GROUP BY f.queue_id, f.kind, f.rank
), seen AS MATERIALIZED (
    SELECT floors.*, CASE floors.kind
        WHEN {floor.READY} THEN (SELECT r.position FROM leasequeue_ready r
            WHERE r.queue_id = floors.queue_id AND r.rank = floors.rank
            AND r.lane = {FRESH} AND r.position < floors.value ORDER BY r.position LIMIT 1)
        WHEN {floor.DELAYED} THEN (SELECT (extract(epoch FROM d.available_at) * 1000000)::bigint
            FROM leasequeue_delayed d
            WHERE d.queue_id = floors.queue_id
                AND d.available_at < 'epoch'::timestamptz + floors.value * interval '1 us'
            ORDER BY d.available_at LIMIT 1)
        ELSE (SELECT (extract(epoch FROM c.deadline) * 1000000)::bigint FROM leasequeue_claim c
            WHERE c.queue_id = floors.queue_id AND c.deadline < 'epoch'::timestamptz + floors.value * interval '1 us'
            ORDER BY c.deadline LIMIT 1) END AS low
    FROM floors
), gone AS (
    DELETE FROM leasequeue_queuefloor WHERE id = ANY (ARRAY(
        SELECT o.id FROM (SELECT * FROM seen WHERE low IS NOT NULL OFFSET 0) too_high CROSS JOIN LATERAL (
            SELECT f.id FROM leasequeue_queuefloor f WHERE f.queue_id = too_high.queue_id AND f.kind = too_high.kind
                AND f.rank = too_high.rank
                AND f.value > too_high.low ORDER BY f.value) o))
), counted AS (
    UPDATE leasequeue_queue q SET floors_mended = q.floors_mended + n.n
    FROM (SELECT queue_id, count(*) AS n FROM seen WHERE low IS NOT NULL GROUP BY queue_id) n WHERE q.id = n.queue_id
)
SELECT seen.queue_id, q.name AS queue, q.project, seen.kind, seen.rank, seen.value, seen.low
FROM seen JOIN leasequeue_queue q ON q.id = seen.queue_id
WHERE seen.low IS NOT NULL ORDER BY seen.queue_id, seen.kind, seen.rank
