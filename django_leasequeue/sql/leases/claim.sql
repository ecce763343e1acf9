-- Purpose: lease up to n fresh jobs of one queue, in order of rank and position, to one node. Their rows in ready go,
--   their numbers stand in the claim; the jobs themselves are only read. For queues where nothing came back to an old
--   place (claim_look.sql); claim_mixed.sql is for the others.
-- Parameters: queue (id), ranks (in order), lows (lowest position worth reading of each), node, size, lease_ms (null:
--   the queue's), grace_ms, connection (null or a stream's mark), slots (the caller has locked and counted the leases
--   of a queue with concurrency), now, autocommit, alone.
-- Index: leasequeue_ready_pkey from the floors on, leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 50 + 12 a row
-- Returns: on every row whether nothing was taken because a job stands in the way that claim_mixed.sql has to look at;
--   then the job, or nulls.
WITH queue AS MATERIALIZED ({claimed_queue()}), picked AS MATERIALIZED (
    SELECT r.* FROM queue, unnest(%(ranks)s::smallint[], %(lows)s::bigint[]) AS f(rank, low) CROSS JOIN LATERAL (
        SELECT r.ctid AS tid, r.flags & {SUSPECT|LARGE} <> 0 OR queue.max IS NOT NULL
            AND COALESCE(r.max_deliveries, queue.max) BETWEEN 1 AND r.deliveries AS odd
        FROM leasequeue_ready r
        WHERE r.queue_id = %(queue)s::bigint AND r.rank = f.rank AND r.lane = {FRESH} AND r.position >= f.low
            AND (r.expires_at IS NULL OR r.expires_at > queue.now)
        ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) r
    LIMIT %(size)s::int
), taken AS (
    DELETE FROM leasequeue_ready r
    WHERE r.ctid = ANY (ARRAY(SELECT tid FROM picked WHERE NOT EXISTS (SELECT FROM picked WHERE odd)))
    RETURNING r.seq, r.rank, r.position, r.deliveries + 1 AS deliveries, r.flags, r.ready_at, r.max_deliveries
), jobs AS MATERIALIZED (
    SELECT r.*, j.created_at, j.key, j.name, j.tag, j.data, j.meta, j.body, j.reply_to, j.first_claimed_at, j.progress
    FROM taken r CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = r.seq OFFSET 0) j
), {claim_made(jobs, deliveries)}
SELECT EXISTS (SELECT FROM picked WHERE odd), jobs.seq, queue.id AS queue_id, queue.name AS queue, claim.token,
    date_part('epoch', claim.deadline) AS deadline_epoch, date_part('epoch', jobs.created_at) AS created_epoch,
    date_part('epoch', queue.now) AS claimed_epoch, jobs.deliveries,
    COALESCE(jobs.max_deliveries, queue.max_deliveries) AS max_deliveries, jobs.rank, jobs.key, jobs.name, jobs.tag,
    jobs.data::text AS data_json, jobs.meta::text AS meta_json, jobs.body, jobs.reply_to,
    CASE WHEN jobs.flags & {FAILED} <> 0 THEN leasequeue_errors(jobs.seq)::text END AS errors_json,
    date_part('epoch', COALESCE(jobs.first_claimed_at, queue.now)) AS first_claimed_epoch,
    jobs.progress::text AS progress_json, jobs.position,
    jobs.flags | CASE WHEN %(slots)s::bool THEN {FLOW} ELSE 0 END AS flags
FROM queue LEFT JOIN (claim CROSS JOIN jobs) ON true ORDER BY jobs.rank, jobs.position
