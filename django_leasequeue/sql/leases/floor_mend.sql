-- Purpose: lower the floors below which something waits: no claim would see it. Each is lowered to the lowest live value, and the
--   queue counts it.
-- Parameters: queues (ids; null: all).
-- Index: leasequeue_floor_place; leasequeue_ready_pkey (its fresh lane), leasequeue_delayed_due and leasequeue_claim_deadline from
--   their beginning: one entry a floor, and what a held snapshot keeps of dead entries below it.
-- Pages: 60 + 10 a row
-- Returns: of each floor that was lowered: queue id, queue, project, kind, rank, where it stood, lowest live value.
WITH f AS MATERIALIZED (
    SELECT f.queue_id, f.kind, f.rank, max(f.value) AS value FROM leasequeue_queuefloor f
    WHERE f.kind IN (0, 1, 2) AND (%(queues)s::bigint[] IS NULL OR f.queue_id = ANY (%(queues)s::bigint[]))
    GROUP BY f.queue_id, f.kind, f.rank
), x AS MATERIALIZED (
    SELECT f.*, CASE f.kind
        WHEN 0 THEN (SELECT r.position FROM leasequeue_ready r WHERE r.queue_id = f.queue_id AND r.rank = f.rank
            AND r.lane = 2 AND r.position < f.value ORDER BY r.position LIMIT 1)
        WHEN 1 THEN (SELECT (extract(epoch FROM d.available_at) * 1000000)::bigint FROM leasequeue_delayed d
            WHERE d.queue_id = f.queue_id AND d.available_at < 'epoch'::timestamptz + f.value * interval '1 us'
            ORDER BY d.available_at LIMIT 1)
        ELSE (SELECT (extract(epoch FROM c.deadline) * 1000000)::bigint FROM leasequeue_claim c
            WHERE c.queue_id = f.queue_id AND c.deadline < 'epoch'::timestamptz + f.value * interval '1 us'
            ORDER BY c.deadline LIMIT 1) END AS low
    FROM f
), gone AS (
    DELETE FROM leasequeue_queuefloor WHERE id = ANY (ARRAY(
        SELECT o.id FROM (SELECT * FROM x WHERE x.low IS NOT NULL OFFSET 0) x CROSS JOIN LATERAL (
            SELECT f.id FROM leasequeue_queuefloor f WHERE f.queue_id = x.queue_id AND f.kind = x.kind AND f.rank = x.rank
                AND f.value > x.low ORDER BY f.value) o))
), counted AS (
    UPDATE leasequeue_queue q SET floors_mended = q.floors_mended + n.n
    FROM (SELECT queue_id, count(*) AS n FROM x WHERE low IS NOT NULL GROUP BY queue_id) n WHERE q.id = n.queue_id
)
SELECT x.queue_id, q.name, q.project, x.kind, x.rank, x.value, x.low FROM x JOIN leasequeue_queue q ON q.id = x.queue_id
WHERE x.low IS NOT NULL ORDER BY x.queue_id, x.kind, x.rank
