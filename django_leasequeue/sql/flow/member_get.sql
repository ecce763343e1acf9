-- Purpose: what holds a job, or counts it: its limit and key, its workflow.
-- Parameters: seq.
-- Index: leasequeue_member_pkey, leasequeue_limitkey_pkey, leasequeue_limit_pkey, leasequeue_workflow_pkey.
-- Pages: 20
SELECT m.state::int, m.taken, m.pending, m.label, l.name AS limit, k.key, l.concurrency, l.rate, l.per_ms,
    w.uid AS workflow, w.name AS workflow_name
FROM leasequeue_member m
LEFT JOIN LATERAL (SELECT * FROM leasequeue_limitkey k WHERE k.id = m.key OFFSET 0) k ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_limit l WHERE l.id = k.limit_id OFFSET 0) l ON true
LEFT JOIN LATERAL (SELECT w.uid, w.name FROM leasequeue_workflow w WHERE w.id = m.workflow OFFSET 0) w ON true
WHERE m.seq = %(seq)s::bigint
