-- Purpose: ready jobs of a queue in claim order, a page at a time; expired messages are left out, as in a claim.
-- Parameters: project, queue, rank and position (of the last job seen; null: from the start), size, now.
-- Index: leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey, the fresh lane from the floor on.
-- Pages: 20 + 0.4 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now), ranks AS MATERIALIZED (
    SELECT q.id, k.rank, CASE WHEN k.rank = %(rank)s::int THEN %(position)s::bigint + 1 ELSE 0 END AS low,
        {floor(q.id, {floor.READY}, k.rank)} AS floor
    FROM leasequeue_queue q CROSS JOIN LATERAL (
        SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id) k
    WHERE q.project = %(project)s AND q.name = %(queue)s AND (%(rank)s::int IS NULL OR k.rank >= %(rank)s::int)
    ORDER BY k.rank
)
SELECT page.seq, page.rank, page.position FROM (
    SELECT r.seq, ranks.rank, r.position FROM ranks CROSS JOIN LATERAL (
        SELECT r.seq, r.position FROM (VALUES ({AGAIN}, ranks.low), ({FRESH},
            GREATEST(ranks.low, ranks.floor))) AS l(lane, low) CROSS JOIN LATERAL (
            SELECT r.seq, r.position FROM leasequeue_ready r
            WHERE r.queue_id = ranks.id AND r.rank = ranks.rank AND r.lane = l.lane AND r.position >= l.low
                AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM clock))
            ORDER BY r.position LIMIT %(size)s::int) r
        ORDER BY r.position LIMIT %(size)s::int) r
    LIMIT %(size)s::int) page
ORDER BY page.rank, page.position
