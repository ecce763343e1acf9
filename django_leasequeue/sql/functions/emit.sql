-- Purpose: keep an event that jobs wait for, and make those that wait due. Who emits and who goes to wait may not pass
--   each other: the one waits for this lock, the other looks whether it is free. The lock is taken in an expression,
--   which costs less than a statement; the statements behind it see what was committed before. Nearly every event is
--   new: a plain conflict clause costs less than one with an update, which runs when it is not.
-- Parameters: in_project, in_name, in_payload, in_keep (ms), in_size (jobs that are due at most), in_now.
-- Settings: its own, as those of holds.
-- Index: leasequeue_emittedevent_pkey, leasequeue_jobstep_event.
-- Returns: the queues of those that waited; null: an event of this name is kept already.
CREATE FUNCTION leasequeue_emit(in_project text, in_name text, in_payload json, in_keep bigint, in_size int,
    in_now timestamptz)
    RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    alone CONSTANT bool := pg_advisory_xact_lock({lock.events}, hashtext(in_project || chr(31) || in_name)) IS NOT NULL;
    moment CONSTANT timestamptz := COALESCE(in_now, clock_timestamp());
    queues bigint[];
BEGIN
    INSERT INTO leasequeue_emittedevent (project, name, payload, emitted_at, expires_at)
    VALUES (in_project, in_name, in_payload, moment, moment + in_keep * interval '1 ms') ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        INSERT INTO leasequeue_emittedevent AS e (project, name, payload, emitted_at, expires_at)
        VALUES (in_project, in_name, in_payload, moment, moment + in_keep * interval '1 ms')
        ON CONFLICT (project, name) DO UPDATE SET payload = excluded.payload, emitted_at = excluded.emitted_at,
            expires_at = excluded.expires_at WHERE e.expires_at <= moment;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM leasequeue_jobstep s WHERE s.project = in_project AND s.event = in_name) THEN
        queues := leasequeue_make_due(in_project, in_name, in_size, moment);
    END IF;
    RETURN COALESCE(queues, '{}');
END $$;
