-- Purpose: begin the row of a new epoch's timeline, and say of the one before what readers cannot have lost: a
--   consumer's report that is here proves that everything was that it could read then. After the function that names
--   the epoch was replaced.
-- Parameters: now.
-- Index: leasequeue_timeline_pkey.
-- Pages: 40
WITH kept AS (
    UPDATE leasequeue_timeline SET horizon = GREATEST(horizon, (SELECT max(horizon) FROM leasequeue_lakeconsumer))
    WHERE timeline = (SELECT max(timeline) FROM leasequeue_timeline)
)
INSERT INTO leasequeue_timeline (timeline, head, mark, sealed, horizon, noted_at, system)
SELECT {timeline()}, COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0), {txid()}, 0,
    {horizon()}, {now()}, leasequeue_system()
RETURNING timeline
