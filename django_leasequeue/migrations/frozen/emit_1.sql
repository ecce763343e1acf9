CREATE FUNCTION leasequeue_emit(in_project text, in_name text, in_payload json, in_keep bigint, in_size int,
    in_now timestamptz)
    RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    alone CONSTANT bool := pg_advisory_xact_lock((1280657731 # 'leasequeue_emittedevent'::regclass::oid::int), hashtext(in_project || chr(31) || in_name)) IS NOT NULL;
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
