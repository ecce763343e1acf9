-- Purpose: the workflow that a job is a node of.
-- Parameters: seq.
-- Index: leasequeue_member_pkey, leasequeue_workflow_pkey.
-- Pages: 12
SELECT w.id, w.uid, w.name
FROM (SELECT m.workflow FROM leasequeue_member m WHERE m.seq = %(seq)s::bigint) m
CROSS JOIN LATERAL (SELECT * FROM leasequeue_workflow w WHERE w.id = m.workflow OFFSET 0) w
