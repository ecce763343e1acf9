-- Purpose: cancel a workflow: its state, and the members that are to be taken out.
-- Parameters: uid, project, now.
-- Index: leasequeue_workflow_uid_key, leasequeue_member_workflow.
-- Pages: 20 + 4 a row
-- Returns: queue id, the numbers of its members that have not ended; no row if the workflow has ended or is not there.
WITH w AS (
    UPDATE leasequeue_workflow SET state = 3 WHERE uid = %(uid)s::uuid AND project = %(project)s AND ended_at IS NULL RETURNING id
)
SELECT m.queue_id, array_agg(m.seq ORDER BY m.seq) FROM w CROSS JOIN LATERAL (
    SELECT m.queue_id, m.seq FROM leasequeue_member m WHERE m.workflow = w.id AND m.state IN (0, 3) OFFSET 0) m
GROUP BY m.queue_id
