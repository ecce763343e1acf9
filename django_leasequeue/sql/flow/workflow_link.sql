-- Purpose: nodes were added to a workflow: their parents of before learn of them, and those that have ended already
--   count as ended. The caller holds the workflow (flow_lock.sql).
-- Parameters: workflow (id), seqs (of the new nodes), edges (their parents together).
-- Index: leasequeue_member_pkey, leasequeue_workflow_pkey.
-- Pages: 30 + 30 a row
-- Returns: what, seq, key, queue id. What (a NodeNext): a node that waits for no parent any more starts (key null: at
--   once) or has a time of its own (flow_delay.sql); a parent of before that has failed or was cancelled is broken; a
--   node goes whose workflow was cancelled, or is forgotten.
WITH nodes AS MATERIALIZED (
    SELECT m.seq, m.queue_id, m.tolerant, m.parents FROM unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_member m WHERE m.seq = u.seq OFFSET 0) m
), edges AS MATERIALIZED (
    SELECT u.parent, nodes.seq AS child, nodes.tolerant FROM nodes, unnest(nodes.parents) AS u(parent)
    WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.seq = u.parent)
), grown AS MATERIALIZED (
    SELECT parent, array_agg(child ORDER BY child) AS children FROM edges GROUP BY parent
), workflow AS (
    UPDATE leasequeue_workflow SET total = total + cardinality(%(seqs)s::bigint[]), edges = edges + %(edges)s::int
    WHERE id = %(workflow)s::bigint RETURNING state
), parents AS (
    UPDATE leasequeue_member p SET children = p.children || grown.children
    FROM grown WHERE p.seq = grown.parent AND p.seq = ANY (ARRAY(SELECT parent FROM grown)) RETURNING p.seq, p.state
), ended AS MATERIALIZED (
    SELECT edges.child, count(*) AS n FROM edges JOIN parents ON parents.seq = edges.parent
    WHERE parents.state = {member.COMPLETED} OR parents.state IN ({member.FAILED}, {member.CANCELLED})
        AND edges.tolerant GROUP BY edges.child
), done AS (
    UPDATE leasequeue_member m SET pending = m.pending - ended.n, waits = m.key IS NOT NULL AND m.state = {member.OPEN}
        AND m.pending = ended.n
        AND m.delay_ms IS NULL AND m.not_before IS NULL
    FROM ended WHERE m.seq = ended.child AND m.seq = ANY (ARRAY(SELECT child FROM ended))
    RETURNING m.seq, m.key, m.queue_id, m.pending, m.state, m.delay_ms IS NOT NULL OR m.not_before IS NOT NULL AS timed
), gone AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (%(seqs)s::bigint[]) AND NOT EXISTS (SELECT FROM workflow)
)
SELECT CASE WHEN d.timed THEN {next.TIMED} ELSE {next.STARTS} END, d.seq, d.key, d.queue_id FROM done d
WHERE d.pending = 0 AND d.state = {member.OPEN}
UNION ALL SELECT {next.BROKEN}, seq, NULL, NULL FROM parents WHERE state IN ({member.FAILED}, {member.CANCELLED})
UNION ALL SELECT {next.GOES}, nodes.seq, NULL, nodes.queue_id FROM nodes
    WHERE NOT EXISTS (SELECT FROM workflow WHERE state <> {workflow.CANCELLED})
