-- Purpose: ready jobs of a queue in claim order, a page at a time; messages past their TTL are left out, as in a claim.
-- Parameters: project, queue, rank and position (of the last job seen; null: from the start), size, now.
-- Index: leasequeue_rank_place, leasequeue_floor_place, leasequeue_ready_pkey, the fresh lane from the floor on.
-- Pages: 20 + 0.4 a row
-- Returns: seq, rank, position.
WITH t AS MATERIALIZED (SELECT {now()} AS now), f AS MATERIALIZED (
    SELECT q.id, k.rank, CASE WHEN k.rank = %(rank)s::int THEN %(position)s::bigint + 1 ELSE 0 END AS low, {floor(q.id, 0, k.rank)} AS floor
    FROM leasequeue_queue q CROSS JOIN LATERAL (
        SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE k.queue_id = q.id) k
    WHERE q.project = %(project)s AND q.name = %(queue)s AND (%(rank)s::int IS NULL OR k.rank >= %(rank)s::int)
    ORDER BY k.rank
)
SELECT x.seq, x.rank, x.position FROM (
    SELECT r.seq, f.rank, r.position FROM f CROSS JOIN LATERAL (
        SELECT r.seq, r.position FROM (VALUES (1, f.low), (2, GREATEST(f.low, f.floor))) AS l(lane, low) CROSS JOIN LATERAL (
            SELECT r.seq, r.position FROM leasequeue_ready r
            WHERE r.queue_id = f.id AND r.rank = f.rank AND r.lane = l.lane AND r.position >= l.low
                AND (r.expires_at IS NULL OR r.expires_at > (SELECT now FROM t))
            ORDER BY r.position LIMIT %(size)s::int) r
        ORDER BY r.position LIMIT %(size)s::int) r
    LIMIT %(size)s::int) x
ORDER BY x.rank, x.position
