-- Purpose: what a workflow has, and whether it goes on, before nodes are added to it. It locks nothing.
-- Parameters: uid, project, known (seqs of jobs that are to be parents).
-- Index: leasequeue_workflow_uid_key, leasequeue_flowturn_extend, leasequeue_member_pkey.
-- Pages: 20 + 4 a row
-- Returns: id, state, ended at, nodes and edges with those of its turns that are to come, the known jobs that are no
--   nodes of it.
SELECT w.id, w.state::int, w.ended_at, w.total + COALESCE(u.nodes, 0)::int, w.edges + COALESCE(u.edges, 0)::int,
    ARRAY(SELECT k.seq FROM unnest(%(known)s::bigint[]) AS k(seq)
        LEFT JOIN LATERAL (SELECT m.workflow FROM leasequeue_member m WHERE m.seq = k.seq OFFSET 0) m ON true
        WHERE m.workflow IS DISTINCT FROM w.id)
FROM leasequeue_workflow w CROSS JOIN LATERAL (
    SELECT sum(cardinality(u.seqs)) AS nodes, sum((u.detail ->> 'edges')::int) AS edges
    FROM leasequeue_flowturn u WHERE u.kind = {turn.EXTEND} AND u.key = w.id) u
WHERE w.uid = %(uid)s::uuid AND w.project = %(project)s
