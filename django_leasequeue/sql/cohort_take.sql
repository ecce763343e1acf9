-- Purpose: waiters that were dealt to leave with their jobs.
-- Parameters: ids.
-- Index: leasequeue_claimwaiter_pkey, leasequeue_claim_pkey, leasequeue_job_pkey.
-- Returns: waiter, then its job, or nulls when nothing was left for it; no row for a waiter that was not dealt to yet.
WITH w AS (
    DELETE FROM leasequeue_claimwaiter WHERE id = ANY (%(ids)s::bigint[]) AND dealt_at IS NOT NULL RETURNING id, claim
)
SELECT w.id, l.* FROM w LEFT JOIN LATERAL (
    SELECT j.seq, j.queue_id, q.name AS queue, j.claim, j.deadline, j.created_at, j.claimed_at, j.deliveries,
        COALESCE(j.max_deliveries, q.max_deliveries), j.rank, j.key, j.name, j.tag, j.data::text, j.meta::text, j.body,
        j.reply_to, j.errors::text, j.first_claimed_at, j.progress::text, j.position
    FROM leasequeue_claim c JOIN leasequeue_job j ON j.seq = ANY (c.seqs) AND j.claim = c.id AND j.state = 2
    JOIN leasequeue_queue q ON q.id = j.queue_id
    WHERE c.id = w.claim
) l ON true ORDER BY w.id, l.rank, l.position
