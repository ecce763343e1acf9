CREATE FUNCTION leasequeue_holds(in_seq bigint, in_token bigint, in_node text, in_now timestamptz,
    in_locks boolean) RETURNS boolean
VOLATILE LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF in_locks THEN
        PERFORM FROM leasequeue_job j WHERE j.seq = in_seq FOR KEY SHARE;
        -- A statement of its own: it sees what was committed before the job was locked.
        PERFORM FROM leasequeue_claim c WHERE c.token = in_token AND (c.node = in_node) IS TRUE
            AND in_seq = ANY (c.seqs)
            FOR KEY SHARE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;
    RETURN EXISTS (SELECT FROM leasequeue_claim c WHERE c.token = in_token AND (c.node = in_node) IS TRUE
        AND in_seq = ANY (c.seqs)
        AND (c.deadline >= COALESCE(in_now, clock_timestamp())
            OR (SELECT q.late_ack FROM leasequeue_queue q WHERE q.id = c.queue_id) = 'accept'));
END $$;
