CREATE FUNCTION leasequeue_make_due(in_project text, in_name text, in_size int, in_now timestamptz) RETURNS bigint[]
LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    waiting bigint[] := ARRAY(
        SELECT s.seq FROM leasequeue_jobstep s WHERE s.project = in_project AND s.event = in_name LIMIT in_size);
BEGIN
    WITH due AS (
        UPDATE leasequeue_delayed d SET available_at = in_now
        WHERE d.seq = ANY (waiting)
            AND (d.available_at > in_now AND d.available_at < '9000-01-01 00:00+00') IS TRUE
        RETURNING d.queue_id
    )
    SELECT array_agg(DISTINCT due.queue_id) INTO waiting FROM due;
    RETURN waiting;
END $$;
