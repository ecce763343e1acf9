-- Purpose: nodes have failed: what comes after them and is not tolerant will not start. With back: they run again, and it may.
--   The caller holds the workflow (flow_lock.sql).
-- Parameters: seqs (of the nodes), back.
-- Index: leasequeue_member_pkey: the descendants, once each.
-- Pages: 20 + 16 a row
-- Returns: seq and workflow of those whose state has changed.
WITH RECURSIVE d AS (
    SELECT u.child AS seq FROM unnest(%(seqs)s::bigint[]) AS p(seq)
    CROSS JOIN LATERAL (SELECT m.children FROM leasequeue_member m WHERE m.seq = p.seq OFFSET 0) m, unnest(m.children) AS u(child)
    UNION
    SELECT u.child FROM d CROSS JOIN LATERAL (SELECT m.children FROM leasequeue_member m
        WHERE m.seq = d.seq AND NOT m.tolerant OFFSET 0) m, unnest(m.children) AS u(child)
)
UPDATE leasequeue_member m SET state = CASE WHEN %(back)s::bool THEN 0 ELSE 3 END, waits = false
WHERE m.seq = ANY (ARRAY(SELECT seq FROM d)) AND NOT m.tolerant AND m.state = CASE WHEN %(back)s::bool THEN 3 ELSE 0 END
RETURNING m.seq, m.workflow
