-- Purpose: claim.sql for the uncommon cases: jobs that came back to an old place, tags, suspects, jobs that used up
--   their deliveries, large payloads, jobs that were admitted for their rate.
-- Parameters: queue (id), ranks (in order), lows (lowest fresh position worth reading of each), tags (array, each once;
--   null: any), admitted (numbers of the jobs that may be taken, wherever they stand in the queue; null: any), node,
--   size, lease_ms (null: the queue's), grace_ms, connection (null or a stream's mark), suspect_alone (whether a
--   suspect comes with no other), bytes (of payloads together), first (the first job always fits), slots (as in
--   claim.sql), now, autocommit, alone.
-- Index: leasequeue_ready_pkey, the fresh lane from the floors on, and the place of each admitted job;
--   leasequeue_ready_tag, at most size rows of each tag; leasequeue_job_pkey, leasequeue_queue_pkey.
-- Pages: 20 + 15 a row
-- Returns: on every row spent (jobs met that used up their deliveries: move them aside), cut (jobs were left for a
--   suspect or for their size); then the job, or nulls.
WITH queue AS MATERIALIZED ({claimed_queue()}), picked AS MATERIALIZED (
    SELECT r.*, row_number() OVER () AS n FROM (
        SELECT r.*, queue.max IS NOT NULL AND COALESCE(r.max_deliveries, queue.max) BETWEEN 1 AND r.deliveries AS spent
        FROM queue, unnest(%(ranks)s::smallint[], %(lows)s::bigint[]) AS f(rank, low) CROSS JOIN LATERAL (
            SELECT * FROM (
                SELECT r.ctid AS tid, r.* FROM leasequeue_ready r
                WHERE %(tags)s::text[] IS NULL AND %(admitted)s::bigint[] IS NULL AND r.queue_id = %(queue)s::bigint
                    AND r.rank = f.rank AND r.lane = {AGAIN}
                    AND (r.expires_at IS NULL OR r.expires_at > queue.now)
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) a
            UNION ALL
            SELECT * FROM (
                SELECT r.ctid AS tid, r.* FROM leasequeue_ready r
                WHERE %(tags)s::text[] IS NULL AND %(admitted)s::bigint[] IS NULL AND r.queue_id = %(queue)s::bigint
                    AND r.rank = f.rank AND r.lane = {FRESH}
                    AND r.position >= f.low
                    AND (r.expires_at IS NULL OR r.expires_at > queue.now)
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) b
            UNION ALL
            SELECT d.* FROM unnest(%(admitted)s::bigint[]) AS a(seq)
            CROSS JOIN LATERAL (SELECT COALESCE(j.position, j.seq) AS position FROM leasequeue_job j
                WHERE j.seq = a.seq AND j.rank = f.rank OFFSET 0) j
            CROSS JOIN LATERAL (
                SELECT r.ctid AS tid, r.* FROM leasequeue_ready r
                WHERE r.queue_id = %(queue)s::bigint AND r.rank = f.rank AND r.lane IN ({AGAIN}, {FRESH})
                    AND r.position = j.position AND r.seq = a.seq
                    AND (r.expires_at IS NULL OR r.expires_at > queue.now)
                FOR UPDATE SKIP LOCKED) d
            UNION ALL
            SELECT c.* FROM unnest(%(tags)s::text[]) AS w(tag) CROSS JOIN LATERAL (
                SELECT r.ctid AS tid, r.* FROM leasequeue_ready r
                WHERE %(admitted)s::bigint[] IS NULL AND r.queue_id = %(queue)s::bigint AND r.tag = w.tag
                    AND r.rank = f.rank
                    AND (r.expires_at IS NULL OR r.expires_at > queue.now)
                ORDER BY r.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) c
            ORDER BY position LIMIT %(size)s::int) r
        LIMIT %(size)s::int) r
), measured AS MATERIALIZED (
    -- By their sizes as they are stored, which are no more: what cannot fit into the answer is not read.
    SELECT picked.*, j.created_at, j.key, j.name, j.data, j.meta, j.body, j.reply_to, j.first_claimed_at, j.progress,
        sum(COALESCE(pg_column_size(j.data) - 4, 0) + COALESCE(pg_column_size(j.meta) - 4, 0)
            + COALESCE(pg_column_size(j.body) - 4, 0)) OVER (ORDER BY picked.n ROWS UNBOUNDED PRECEDING) AS stored
    FROM picked CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = picked.seq OFFSET 0) j
    WHERE NOT picked.spent AND (NOT %(suspect_alone)s::bool OR picked.n = 1
        OR picked.n < COALESCE((SELECT min(s.n) FROM picked s WHERE s.flags & {SUSPECT} <> 0), 2147483647))
), loaded AS MATERIALIZED (
    SELECT measured.*, measured.deliveries + 1 AS delivery,
        sum({bytes(measured)}) OVER (ORDER BY measured.n ROWS UNBOUNDED PRECEDING) AS bytes
    FROM measured WHERE measured.stored <= %(bytes)s::bigint OR measured.n = (SELECT min(n) FROM measured)
), taken AS (
    DELETE FROM leasequeue_ready WHERE ctid = ANY (ARRAY(
        SELECT loaded.tid FROM loaded WHERE loaded.bytes <= %(bytes)s::bigint OR %(first)s::bool
            AND loaded.n = (SELECT min(n) FROM loaded)))
    RETURNING seq
), jobs AS MATERIALIZED (
    -- What went, not what was to go: a row that was changed since this statement began is left where it is.
    SELECT loaded.* FROM taken JOIN loaded ON loaded.seq = taken.seq
), {claim_made(jobs, delivery)}
SELECT (SELECT count(*) FROM picked WHERE spent),
    (SELECT count(*) FROM picked WHERE NOT spent) > (SELECT count(*) FROM jobs), jobs.seq, queue.id AS queue_id,
    queue.name AS queue, claim.token, date_part('epoch', claim.deadline) AS deadline_epoch,
    date_part('epoch', jobs.created_at) AS created_epoch, date_part('epoch', queue.now) AS claimed_epoch,
    jobs.delivery AS deliveries, COALESCE(jobs.max_deliveries, queue.max_deliveries) AS max_deliveries, jobs.rank,
    jobs.key, jobs.name, jobs.tag, jobs.data::text AS data_json, jobs.meta::text AS meta_json, jobs.body, jobs.reply_to,
    CASE WHEN jobs.flags & {FAILED} <> 0 THEN leasequeue_errors(jobs.seq)::text END AS errors_json,
    date_part('epoch', COALESCE(jobs.first_claimed_at, queue.now)) AS first_claimed_epoch,
    jobs.progress::text AS progress_json, jobs.position,
    jobs.flags | CASE WHEN %(slots)s::bool THEN {FLOW} ELSE 0 END AS flags
FROM queue LEFT JOIN (claim CROSS JOIN jobs) ON true ORDER BY jobs.n
