CREATE FUNCTION leasequeue_leave_turns(in_queue bigint, in_flags int,
    in_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    woken bigint[] := '{}';
BEGIN
    IF cardinality(in_seqs) = 0 THEN
        RETURN;
    END IF;
    IF in_flags & 128 <> 0 THEN
        WITH left_turns AS (
            INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs)
            SELECT COALESCE(successor.queue_id, in_queue), 'epoch', 2, array_agg(u.seq)
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
    IF in_flags & 256 <> 0 THEN
        woken := woken || in_queue;
    END IF;
    -- One expression: who is cancelled in the middle would keep the lock.
    PERFORM CASE WHEN pg_try_advisory_lock((1280657731 # 'leasequeue_ready'::regclass::oid::int), u.id::int)
    THEN pg_advisory_unlock((1280657731 # 'leasequeue_ready'::regclass::oid::int), u.id::int)::text
    ELSE pg_notify(('leasequeue_' || 'leasequeue_ready'::regclass::oid::text), 'q' || u.id)::text END
    FROM (SELECT DISTINCT w.id FROM unnest(woken) AS w(id)) u;
END $$;
