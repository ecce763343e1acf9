CREATE FUNCTION leasequeue_wake(in_seqs bigint[], in_now timestamptz) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := COALESCE(in_now, clock_timestamp());
    busy bigint[];
BEGIN
    -- A range and an order, not an equality: without statistics a planner takes that for any index that has the number
    -- in it.
    busy := ARRAY(SELECT s.seq FROM unnest(in_seqs) AS u (seq) CROSS JOIN LATERAL (
            SELECT * FROM leasequeue_jobstep s WHERE s.seq >= u.seq AND s.seq <= u.seq AND s.event IS NOT NULL
            ORDER BY s.seq LIMIT 1) s
        WHERE NOT pg_try_advisory_xact_lock_shared((1280657731 # 'leasequeue_emittedevent'::regclass::oid::int), hashtext(s.project || chr(31) || s.event)));
    -- A statement of its own: it sees what was committed before the lock was free.
    RETURN QUERY WITH waiting AS MATERIALIZED (
        SELECT s.seq, moment + CASE WHEN s.seq = ANY (busy) THEN interval '1 s' ELSE interval '0' END AS due
        FROM unnest(in_seqs) AS u (seq) CROSS JOIN LATERAL (
            SELECT * FROM leasequeue_jobstep s WHERE s.seq >= u.seq AND s.seq <= u.seq AND s.event IS NOT NULL
            ORDER BY s.seq LIMIT 1) s
        WHERE s.seq = ANY (busy) OR EXISTS (
            SELECT FROM leasequeue_emittedevent e WHERE e.project = s.project AND e.name = s.event
                AND (e.expires_at > moment) IS TRUE)
    ), due AS (
        UPDATE leasequeue_delayed d SET available_at = waiting.due FROM waiting
        WHERE d.seq = waiting.seq AND d.seq = ANY (ARRAY(SELECT waiting.seq FROM waiting))
            AND (d.available_at > waiting.due AND d.available_at < '9000-01-01 00:00+00') IS TRUE
        RETURNING d.queue_id
    )
    SELECT DISTINCT due.queue_id FROM due;
END $$;
