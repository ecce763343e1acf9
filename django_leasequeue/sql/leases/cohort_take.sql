-- Purpose: remove waiters that were dealt a claim, and return their jobs.
-- Parameters: ids.
-- Index: leasequeue_claimwaiter_pkey, leasequeue_claim_pkey, leasequeue_job_pkey, leasequeue_attempt_job.
-- Pages: 30
-- Returns: waiter, then its job, or nulls when nothing was left for it; no row for a waiter that was not dealt to yet.
WITH waiters AS MATERIALIZED (
    DELETE FROM leasequeue_claimwaiter WHERE id = ANY (%(ids)s::bigint[]) AND dealt_at IS NOT NULL RETURNING id, claim
)
SELECT waiters.id, l.* FROM waiters LEFT JOIN LATERAL (
    SELECT j.seq, j.queue_id, q.name AS queue, c.token, date_part('epoch', c.deadline) AS deadline_epoch,
        date_part('epoch', j.created_at) AS created_epoch, date_part('epoch', c.created_at) AS claimed_epoch,
        COALESCE(c.deliveries[array_position(c.seqs, j.seq)], 1) AS deliveries,
        COALESCE(j.max_deliveries, q.max_deliveries) AS max_deliveries, j.rank, j.key, j.name, j.tag,
        j.data::text AS data_json, j.meta::text AS meta_json, j.body, j.reply_to,
        CASE WHEN c.flags & {FAILED} <> 0 THEN leasequeue_errors(j.seq)::text END AS errors_json,
        date_part('epoch', COALESCE(j.first_claimed_at, c.created_at)) AS first_claimed_epoch,
        j.progress::text AS progress_json, COALESCE(j.position, j.seq) AS position, c.flags::int
    FROM leasequeue_claim c CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = ANY (c.seqs) OFFSET 0) j
    JOIN leasequeue_queue q ON q.id = j.queue_id
    WHERE c.token = waiters.claim
) l ON true ORDER BY waiters.id, l.rank, l.position
