-- Purpose: what is known of a workflow: one row, whatever its size, and the nodes that were added and are not counted
--   there yet.
-- Parameters: uid, project.
-- Index: leasequeue_workflow_uid_key, leasequeue_flowturn_extend.
-- Pages: 10
SELECT w.id, w.name, w.state::int,
    w.total + (SELECT COALESCE(sum(cardinality(u.seqs)), 0)::int
        FROM leasequeue_flowturn u
        WHERE u.kind = {turn.EXTEND} AND u.key = w.id) AS total,
    w.completed, w.failed, w.cancelled, w.created_at, w.ended_at, w.shape::int
FROM leasequeue_workflow w WHERE w.uid = %(uid)s::uuid AND w.project = %(project)s
