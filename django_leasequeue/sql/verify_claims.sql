-- Purpose: every lease must be found by the sweep: its claim's row is there, lists the job, and is due no later than it.
-- Parameters: size.
-- Index: whole tables, leasequeue_claim_pkey: an operator's statement.
-- Returns: differences in all, difference, seq, queue id, the claim's side, the job's side (json).
WITH d AS (
    SELECT CASE
            WHEN c.id IS NULL THEN 'lease_without_claim'
            WHEN NOT j.seq = ANY (c.seqs) THEN 'not_in_claim'
            WHEN c.queue_id <> j.queue_id OR c.node <> j.node THEN 'claim_of_another'
            WHEN c.deadline > j.deadline THEN 'claim_too_late' END AS difference,
        j.seq, j.queue_id, j.node, j.claim, j.deadline, c.id, c.node AS c_node, c.deadline AS c_deadline
    FROM leasequeue_job j LEFT JOIN leasequeue_claim c ON c.id = j.claim WHERE j.state = 2
)
SELECT count(*) OVER (), d.difference, d.seq, d.queue_id,
    jsonb_strip_nulls(jsonb_build_object('claim', d.id, 'node', d.c_node, 'deadline', d.c_deadline))::text,
    jsonb_build_object('claim', d.claim, 'node', d.node, 'deadline', d.deadline)::text
FROM d WHERE d.difference IS NOT NULL ORDER BY d.seq LIMIT %(size)s::int
