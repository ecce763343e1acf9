-- Purpose: whether a worker holds the lease of a job; with in_locks until the end of the transaction, whose commit may
--   be slow. The job is locked: who takes it out of its claim locks it FOR UPDATE and waits, and the claim's other jobs
--   go on. The claim is locked: who sweeps it passes it over; renewals and ends of its other jobs change no key of it.
--   Never waits for a claim: who has it FOR UPDATE may wait for the job.
-- Parameters: in_seq, in_token, in_node, in_now (null: the server's time), in_locks.
-- Settings: its own: it reads by index, whatever a host's planner knew of tables that fill and empty when it made a
--   plan. They cost less than a statement that sets them, and each one costs: what looks for one row has few.
-- Index: leasequeue_claim_pkey, leasequeue_job_pkey, leasequeue_queue_pkey.
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
