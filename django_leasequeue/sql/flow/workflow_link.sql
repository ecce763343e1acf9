-- Purpose: nodes were added to a workflow: their parents of before learn of them, and those that have ended already count as ended.
--   The caller holds the workflow (flow_lock.sql).
-- Parameters: workflow (id), seqs (of the new nodes), edges (their parents together).
-- Index: leasequeue_member_pkey, leasequeue_workflow_pkey.
-- Pages: 30 + 30 a row
-- Returns: what, seq, key, queue id. What: 0 a node that waits for no parent any more (key null: it may start), 1 a parent of before
--   that has failed or was cancelled, 2 a node that is to be taken out: the workflow was cancelled, or is forgotten, 3 as 0, but it has a time of its own (flow_delay.sql).
WITH m AS MATERIALIZED (
    SELECT m.seq, m.queue_id, m.tolerant, m.parents FROM unnest(%(seqs)s::bigint[]) AS u(seq)
    CROSS JOIN LATERAL (SELECT * FROM leasequeue_member m WHERE m.seq = u.seq OFFSET 0) m
), e AS MATERIALIZED (
    SELECT u.parent, m.seq AS child, m.tolerant FROM m, unnest(m.parents) AS u(parent)
    WHERE NOT EXISTS (SELECT FROM m n WHERE n.seq = u.parent)
), g AS MATERIALIZED (
    SELECT parent, array_agg(child ORDER BY child) AS children FROM e GROUP BY parent
), w AS (
    UPDATE leasequeue_workflow SET total = total + cardinality(%(seqs)s::bigint[]), edges = edges + %(edges)s::int
    WHERE id = %(workflow)s::bigint RETURNING state
), p AS (
    UPDATE leasequeue_member p SET children = p.children || g.children
    FROM g WHERE p.seq = g.parent AND p.seq = ANY (ARRAY(SELECT parent FROM g)) RETURNING p.seq, p.state
), c AS MATERIALIZED (
    SELECT e.child, count(*) AS n FROM e JOIN p ON p.seq = e.parent
    WHERE p.state = 1 OR p.state IN (2, 3) AND e.tolerant GROUP BY e.child
), done AS (
    UPDATE leasequeue_member m SET pending = m.pending - c.n, waits = m.key IS NOT NULL AND m.state = 0 AND m.pending = c.n
        AND m.delay_ms IS NULL AND m.not_before IS NULL
    FROM c WHERE m.seq = c.child AND m.seq = ANY (ARRAY(SELECT child FROM c))
    RETURNING m.seq, m.key, m.queue_id, m.pending, m.state, m.delay_ms IS NOT NULL OR m.not_before IS NOT NULL AS timed
), gone AS (
    DELETE FROM leasequeue_member WHERE seq = ANY (%(seqs)s::bigint[]) AND NOT EXISTS (SELECT FROM w)
)
SELECT CASE WHEN d.timed THEN 3 ELSE 0 END, d.seq, d.key, d.queue_id FROM done d WHERE d.pending = 0 AND d.state = 0
UNION ALL SELECT 1, p.seq, NULL, NULL FROM p WHERE p.state IN (2, 3)
UNION ALL SELECT 2, m.seq, NULL, m.queue_id FROM m WHERE NOT EXISTS (SELECT FROM w WHERE w.state <> 3)
