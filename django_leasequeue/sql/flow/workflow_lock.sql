-- Purpose: lock workflows, and those of jobs, in one order, before the limits of their nodes.
-- Parameters: workflows (ids), seqs.
-- Index: leasequeue_member_pkey, leasequeue_workflow_pkey.
-- Pages: 20 + 12 a row
SELECT w.id FROM leasequeue_workflow w WHERE w.id = ANY (ARRAY(
    SELECT unnest(%(workflows)s::bigint[]) UNION SELECT m.workflow FROM leasequeue_member m
    WHERE m.seq = ANY (%(seqs)s::bigint[])))
ORDER BY w.id FOR UPDATE
