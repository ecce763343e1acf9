-- Purpose: cancel a workflow: its state, and the members that are to be taken out.
-- Parameters: uid, project, now.
-- Index: leasequeue_workflow_uid_key, leasequeue_member_workflow.
-- Pages: 20 + 4 a row
-- Returns: queue id, the numbers of its members that have not ended; no row if the workflow has ended or is not there.
WITH workflow AS (
    UPDATE leasequeue_workflow SET state = {workflow.CANCELLED} WHERE uid = %(uid)s::uuid AND project = %(project)s
        AND ended_at IS NULL RETURNING id
)
SELECT m.queue_id, array_agg(m.seq ORDER BY m.seq) FROM workflow CROSS JOIN LATERAL (
    SELECT m.queue_id, m.seq FROM leasequeue_member m WHERE m.workflow = workflow.id
        AND m.state IN ({member.OPEN}, {member.CANCELLED}) OFFSET 0) m
GROUP BY m.queue_id
