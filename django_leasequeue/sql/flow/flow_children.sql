-- Purpose: parents have ended: their children wait for so many fewer. The caller holds the workflow (flow_lock.sql).
-- Parameters: seqs (of the parents), tolerant (only the children that start however their parents ended), back (the
--   parents run again: the children wait for them once more).
-- Index: leasequeue_member_pkey.
-- Pages: 20 + 16 a row
-- Returns: the children that wait for no parent: seq, key (null: they may start), queue id, what becomes of them (a
--   NodeNext: they start, have a time of their own (flow_delay.sql), or go: they were there for a failure that did not
--   come).
WITH fewer AS MATERIALIZED (
    SELECT u.child, count(*) AS n FROM leasequeue_member m CROSS JOIN LATERAL unnest(m.children) AS u(child)
    WHERE m.seq = ANY (%(seqs)s::bigint[]) GROUP BY u.child
), done AS (
    UPDATE leasequeue_member m
    SET pending = m.pending - CASE WHEN %(back)s::bool THEN -1 ELSE 1 END * (SELECT n FROM fewer WHERE child = m.seq),
        waits = NOT %(back)s::bool AND (m.waits OR m.key IS NOT NULL AND m.state = {member.OPEN}
            AND m.pending = (SELECT n FROM fewer WHERE child = m.seq) AND m.delay_ms IS NULL AND m.not_before IS NULL)
    WHERE m.seq = ANY (ARRAY(SELECT child FROM fewer)) AND (m.tolerant OR NOT %(tolerant)s::bool)
    RETURNING m.seq, m.queue_id, m.key, m.pending, m.state, CASE WHEN m.for_failure AND NOT %(tolerant)s::bool
        THEN {next.GOES} WHEN m.delay_ms IS NOT NULL OR m.not_before IS NOT NULL THEN {next.TIMED}
        ELSE {next.STARTS} END AS next
)
SELECT d.seq, d.key, d.queue_id, d.next FROM done d WHERE d.pending = 0 AND d.state = {member.OPEN}
