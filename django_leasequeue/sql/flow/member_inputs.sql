-- Purpose: how the parents of a job ended, in their order: what it starts with.
-- Parameters: seq.
-- Index: leasequeue_member_pkey, leasequeue_jobresult_pkey, leasequeue_deadletter_pkey, leasequeue_job_pkey,
--   leasequeue_attempt_job, leasequeue_flowturn_follow.
-- Pages: 20 + 30 a row
SELECT u.seq, r.state::int, r.result::text AS result_json, p.state::int AS member,
    COALESCE(r.error_type, d.error_type, a.error_type) AS error_type,
    COALESCE(r.error, d.error, a.message) AS error, j.key
FROM (SELECT m.parents FROM leasequeue_member m WHERE m.seq = %(seq)s::bigint) m
CROSS JOIN LATERAL unnest(m.parents) WITH ORDINALITY AS u(seq, n)
LEFT JOIN LATERAL (SELECT * FROM leasequeue_jobresult r WHERE r.seq = u.seq OFFSET 0) r ON true
LEFT JOIN LATERAL (SELECT * FROM leasequeue_deadletter d WHERE d.seq = u.seq AND d.in_place OFFSET 0) d ON true
-- A dead letter that went to another queue has a number that its node is given a moment later.
LEFT JOIN LATERAL (SELECT f.seqs[2] AS seq FROM leasequeue_flowturn f
    WHERE f.key = u.seq AND f.kind = {turn.FOLLOW} OFFSET 0) f ON true
LEFT JOIN LATERAL (SELECT j.seq, j.key FROM leasequeue_job j WHERE j.seq = COALESCE(f.seq, u.seq) OFFSET 0) j ON true
LEFT JOIN LATERAL (SELECT p.state FROM leasequeue_member p WHERE p.seq = u.seq OFFSET 0) p ON true
-- A dead letter that is tried again has neither: it failed as its newest attempt did. That is what set the job free.
LEFT JOIN LATERAL (SELECT a.error_type, a.message FROM leasequeue_attempt a
    WHERE a.seq = j.seq AND r.state IS NULL AND d.seq IS NULL AND p.state <> {member.CANCELLED} ORDER BY a.id + 0 DESC
    LIMIT 1) a ON true
ORDER BY u.n
