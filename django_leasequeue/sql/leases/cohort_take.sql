-- Purpose: waiters that were dealt to leave with their jobs.
-- Parameters: ids.
-- Index: leasequeue_claimwaiter_pkey, leasequeue_claim_pkey, leasequeue_job_pkey, leasequeue_attempt_job.
-- Pages: 30
-- Returns: waiter, then its job, or nulls when nothing was left for it; no row for a waiter that was not dealt to yet.
WITH w AS MATERIALIZED (
    DELETE FROM leasequeue_claimwaiter WHERE id = ANY (%(ids)s::bigint[]) AND dealt_at IS NOT NULL RETURNING id, claim
)
SELECT w.id, l.* FROM w LEFT JOIN LATERAL (
    SELECT j.seq, j.queue_id, q.name AS queue, c.token, date_part('epoch', c.deadline), date_part('epoch', j.created_at), date_part('epoch', c.created_at),
        COALESCE(c.deliveries[array_position(c.seqs, j.seq)], 1), COALESCE(j.max_deliveries, q.max_deliveries), j.rank, j.key,
        j.name, j.tag, j.data::text, j.meta::text, j.body, j.reply_to,
        CASE WHEN c.flags & 8 <> 0 THEN leasequeue_errors(j.seq)::text END, date_part('epoch', COALESCE(j.first_claimed_at, c.created_at)),
        j.progress::text, COALESCE(j.position, j.seq) AS position, c.flags::int
    FROM leasequeue_claim c CROSS JOIN LATERAL (SELECT * FROM leasequeue_job j WHERE j.seq = ANY (c.seqs) OFFSET 0) j
    JOIN leasequeue_queue q ON q.id = j.queue_id
    WHERE c.token = w.claim
) l ON true ORDER BY w.id, l.rank, l.position
