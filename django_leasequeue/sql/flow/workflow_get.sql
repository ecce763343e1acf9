-- Purpose: what is known of a workflow: one row, whatever its size.
-- Parameters: uid, project.
-- Index: leasequeue_workflow_uid_key.
-- Pages: 10
-- Returns: id, name, state, total, completed, failed, cancelled, made, ended at.
SELECT w.id, w.name, w.state::int, w.total, w.completed, w.failed, w.cancelled, w.created_at, w.ended_at
FROM leasequeue_workflow w WHERE w.uid = %(uid)s::uuid AND w.project = %(project)s
