-- Purpose: jobs under limits and of workflows have left a claim, however that happened. They leave a turn in the queue
--   in which the next job of their key waits: the queue of the claim may be served by others, or be deleted. The next
--   claimer of that queue looks what they set free, and an idle one is woken. It only adds rows: no end of a job waits
--   for another.
-- Parameters: in_queue and in_flags (of the claim), in_seqs (of the jobs).
-- Index: leasequeue_member_pkey, leasequeue_member_waits; inserts.
CREATE FUNCTION leasequeue_leave_turns(in_queue bigint, in_flags int,
    in_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    woken bigint[] := '{}';
BEGIN
    IF cardinality(in_seqs) = 0 THEN
        RETURN;
    END IF;
    IF in_flags & {FLOW} <> 0 THEN
        WITH left_turns AS (
            INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
            SELECT COALESCE(successor.queue_id, in_queue), 'epoch', {turn.LOOK}, array_agg(u.seq)
            FROM unnest(in_seqs) AS u(seq)
            LEFT JOIN LATERAL (
                SELECT m.key FROM leasequeue_member m WHERE m.seq = u.seq AND m.workflow IS NULL OFFSET 0) own ON true
            LEFT JOIN LATERAL (
                SELECT m.queue_id FROM leasequeue_member m WHERE m.key = own.key AND m.waits ORDER BY m.rank, m.seq
                LIMIT 1) successor ON true
            GROUP BY 1 RETURNING queue_id
        )
        SELECT array_agg(left_turns.queue_id) INTO woken FROM left_turns;
    END IF;
    -- The slots of a queue's own limit are counted by its claims.
    IF in_flags & {RATED} <> 0 THEN
        woken := woken || in_queue;
    END IF;
    -- One expression: who is cancelled in the middle would keep the lock.
    PERFORM {wake(u.id)}
    FROM (SELECT DISTINCT w.id FROM unnest(woken) AS w(id)) u;
END $$;
