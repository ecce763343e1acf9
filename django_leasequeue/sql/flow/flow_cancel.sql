-- Purpose: nodes have failed: what comes after them and is not tolerant will not start. With back: they run again, and
--   it may. They stand in Delayed a year later than what may start, so that figures of what waits leave them out. The
--   caller holds the workflow (flow_lock.sql).
-- Parameters: seqs (of the nodes), back.
-- Index: leasequeue_member_pkey: the descendants, once each; leasequeue_delayed_pkey.
-- Pages: 20 + 30 a row
WITH RECURSIVE descendants AS (
    SELECT u.child AS seq FROM unnest(%(seqs)s::bigint[]) AS p(seq)
    CROSS JOIN LATERAL (SELECT m.children FROM leasequeue_member m WHERE m.seq = p.seq OFFSET 0) m,
        unnest(m.children) AS u(child)
    UNION
    SELECT u.child FROM descendants CROSS JOIN LATERAL (SELECT m.children FROM leasequeue_member m
        WHERE m.seq = descendants.seq AND NOT m.tolerant OFFSET 0) m, unnest(m.children) AS u(child)
), changed AS (
    UPDATE leasequeue_member m SET state = CASE WHEN %(back)s::bool THEN {member.OPEN} ELSE {member.CANCELLED} END,
        waits = false
    WHERE m.seq = ANY (ARRAY(SELECT seq FROM descendants)) AND (NOT m.tolerant
        -- What is there for a failure starts after one that has failed, not after one that was cancelled.
        OR m.for_failure AND (SELECT p.state FROM leasequeue_member p
            WHERE p.seq = m.parents[1]) IS DISTINCT FROM {member.FAILED})
        AND m.state = CASE WHEN %(back)s::bool THEN {member.CANCELLED} ELSE {member.OPEN} END
    RETURNING m.seq, m.workflow
), held AS (
    UPDATE leasequeue_delayed w
    SET available_at = CASE WHEN %(back)s::bool THEN {HELD} ELSE {CUT_OFF} END::timestamptz
    WHERE w.seq = ANY (ARRAY(SELECT seq FROM changed)) AND (w.available_at >= {HELD}) IS TRUE
)
SELECT seq, workflow FROM changed
