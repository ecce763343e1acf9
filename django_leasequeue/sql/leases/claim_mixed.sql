-- Purpose: claim.sql for the uncommon cases: jobs that came back to an old place, tags, suspects, jobs that used up their
--   deliveries, large payloads.
-- Parameters: queue (id), ranks (in order), lows (lowest fresh position worth reading of each), tags (array, each once;
--   null: any), node, size, lease_ms (null: the queue's), grace_ms, connection (null or a stream's mark), alone (a suspect is
--   given alone), bytes (of payloads together; the first job always fits), slots (as in claim.sql), now, autocommit.
-- Index: leasequeue_ready_pkey, the fresh lane from the floors on; leasequeue_ready_tag, at most size rows of each tag;
--   leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 20 + 15 a row
-- Returns: on every row spent (jobs met that used up their deliveries: move them aside), cut (jobs were left for a suspect or for
--   their size); then the job, or nulls.
WITH q AS MATERIALIZED ({claimed_queue()}), p AS MATERIALIZED (
    SELECT r.*, row_number() OVER () AS n FROM (
        SELECT r.*, q.max IS NOT NULL AND COALESCE(r.max_deliveries, q.max) BETWEEN 1 AND r.deliveries AS spent
        FROM q, unnest(%(ranks)s::smallint[], %(lows)s::bigint[]) AS f(rank, low) CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT r.ctid AS tid, r.* FROM leasequeue_ready r
                WHERE %(tags)s::text[] IS NULL AND r.queue_id = %(queue)s::bigint AND r.rank = f.rank AND r.lane = 1
                    AND (r.expires_at IS NULL OR r.expires_at > q.now)
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) a
            UNION ALL
            SELECT * FROM (
                SELECT r.ctid AS tid, r.* FROM leasequeue_ready r
                WHERE %(tags)s::text[] IS NULL AND r.queue_id = %(queue)s::bigint AND r.rank = f.rank AND r.lane = 2
                    AND r.position >= f.low
                    AND (r.expires_at IS NULL OR r.expires_at > q.now)
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) b
            UNION ALL
            SELECT c.* FROM unnest(%(tags)s::text[]) AS w(tag) CROSS JOIN LATERAL (
                SELECT r.ctid AS tid, r.* FROM leasequeue_ready r
                WHERE r.queue_id = %(queue)s::bigint AND r.tag = w.tag AND r.rank = f.rank
                    AND (r.expires_at IS NULL OR r.expires_at > q.now)
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) c
            ORDER BY position LIMIT %(size)s::int) r
        LIMIT %(size)s::int) r
), l AS MATERIALIZED (
    SELECT p.*, p.deliveries + 1 AS delivery, j.created_at, j.key, j.name, j.data::text AS data, j.meta::text AS meta, j.body, j.reply_to,
        j.first_claimed_at, j.progress::text AS progress,
        sum({bytes(j)}) OVER (ORDER BY p.n ROWS UNBOUNDED PRECEDING) AS bytes
    FROM p CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = p.seq OFFSET 0) j
    WHERE NOT p.spent AND (NOT %(alone)s::bool OR p.n = 1
        OR p.n < COALESCE((SELECT min(s.n) FROM p s WHERE s.flags & 32 <> 0), 2147483647))
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(
        SELECT l.tid FROM l WHERE l.bytes <= %(bytes)s::bigint OR l.n = (SELECT min(n) FROM l)))
    RETURNING seq
), g AS MATERIALIZED (
    -- What went, not what was to go: a row that was changed since this statement began is left where it is.
    SELECT l.* FROM taken JOIN l ON l.seq = taken.seq
), {claim_made(g, 175, delivery)}
SELECT (SELECT count(*) FROM p WHERE spent), (SELECT count(*) FROM p WHERE NOT spent) > (SELECT count(*) FROM g),
    g.seq, q.id, q.name, c.token, date_part('epoch', c.deadline), date_part('epoch', g.created_at), date_part('epoch', q.now), g.delivery, COALESCE(g.max_deliveries, q.max_deliveries), g.rank,
    g.key, g.name, g.tag, g.data, g.meta, g.body, g.reply_to,
    CASE WHEN g.flags & 8 <> 0 THEN leasequeue_errors(g.seq)::text END, date_part('epoch', COALESCE(g.first_claimed_at, q.now)), g.progress, g.position,
    g.flags | CASE WHEN %(slots)s::bool THEN 128 ELSE 0 END
FROM q LEFT JOIN (c CROSS JOIN g) ON true ORDER BY g.n
