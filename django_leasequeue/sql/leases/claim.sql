-- Purpose: lease up to n fresh jobs of one queue, in order of rank and position, to one node. Their rows in ready go, their numbers
--   stand in the claim; the jobs themselves are only read. For queues where nothing came back to an old place (claim_look.sql);
--   claim_mixed.sql is for the others.
-- Parameters: queue (id), ranks (in order), lows (lowest position worth reading of each), node, size, lease_ms (null: the queue's),
--   grace_ms, connection (null or a stream's mark),
--   slots (the caller has locked and counted the leases of a queue with concurrency), now, autocommit.
-- Index: leasequeue_ready_pkey from the floors on, leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 50 + 12 a row
-- Returns: on every row whether nothing was taken because a job stands in the way that claim_mixed.sql has to look at; then the job,
--   or nulls.
WITH q AS MATERIALIZED ({claimed_queue()}), p AS MATERIALIZED (
    SELECT r.* FROM q, unnest(%(ranks)s::smallint[], %(lows)s::bigint[]) AS f(rank, low) CROSS JOIN LATERAL (
        SELECT r.ctid AS tid, r.flags & 96 <> 0 OR q.max IS NOT NULL AND COALESCE(r.max_deliveries, q.max) BETWEEN 1 AND r.deliveries AS odd
        FROM leasequeue_ready r
        WHERE r.queue_id = %(queue)s::bigint AND r.rank = f.rank AND r.lane = 2 AND r.position >= f.low
            AND (r.expires_at IS NULL OR r.expires_at > q.now)
        ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) r
    LIMIT %(size)s::int
), taken AS (
    DELETE FROM leasequeue_ready r
    WHERE r.ctid = ANY (ARRAY(SELECT tid FROM p WHERE NOT EXISTS (SELECT FROM p WHERE odd)))
    RETURNING r.seq, r.rank, r.position, r.deliveries + 1 AS deliveries, r.flags, r.ready_at, r.max_deliveries
), l AS MATERIALIZED (
    SELECT r.*, j.created_at, j.key, j.name, j.tag, j.data, j.meta, j.body, j.reply_to, j.first_claimed_at, j.progress
    FROM taken r CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = r.seq OFFSET 0) j
), {claim_made(l, 143, deliveries)}
SELECT EXISTS (SELECT FROM p WHERE odd), l.seq, q.id, q.name, c.token, date_part('epoch', c.deadline), date_part('epoch', l.created_at), date_part('epoch', q.now), l.deliveries,
    COALESCE(l.max_deliveries, q.max_deliveries), l.rank, l.key, l.name, l.tag, l.data::text, l.meta::text, l.body, l.reply_to,
    CASE WHEN l.flags & 8 <> 0 THEN leasequeue_errors(l.seq)::text END, date_part('epoch', COALESCE(l.first_claimed_at, q.now)), l.progress::text,
    l.position, l.flags | CASE WHEN %(slots)s::bool THEN 128 ELSE 0 END
FROM q LEFT JOIN (c CROSS JOIN l) ON true ORDER BY l.rank, l.position
