-- Purpose: nodes are to run after all: those of their parents that have failed or were cancelled, and keep them from
--   it. The caller holds the workflow (flow_lock.sql).
-- Parameters: seqs (of the nodes).
-- Index: leasequeue_member_pkey.
-- Pages: 20 + 16 a row
SELECT DISTINCT p.seq FROM leasequeue_member m CROSS JOIN LATERAL unnest(m.parents) AS u(seq)
CROSS JOIN LATERAL (SELECT p.seq FROM leasequeue_member p WHERE p.seq = u.seq
    AND p.state IN ({member.FAILED}, {member.CANCELLED}) OFFSET 0) p
WHERE m.seq = ANY (%(seqs)s::bigint[])
