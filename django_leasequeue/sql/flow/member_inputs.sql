-- Purpose: how the parents of a job ended, in their order: what it starts with.
-- Parameters: seq.
-- Index: leasequeue_member_pkey, leasequeue_jobresult_pkey, leasequeue_queue_pkey.
-- Pages: 20 + 8 a row
-- Returns: seq of the parent, state of its result (null: it has none, or that has expired), the result as JSON text, its state in the
--   workflow (null: that is forgotten).
SELECT u.seq, r.state::int, r.result::text, p.state::int
FROM (SELECT m.parents FROM leasequeue_member m WHERE m.seq = %(seq)s::bigint) m
CROSS JOIN LATERAL unnest(m.parents) WITH ORDINALITY AS u(seq, n)
LEFT JOIN LATERAL (SELECT r.state, r.result FROM leasequeue_jobresult r WHERE r.seq = u.seq OFFSET 0) r ON true
LEFT JOIN LATERAL (SELECT p.state FROM leasequeue_member p WHERE p.seq = u.seq OFFSET 0) p ON true
ORDER BY u.n
