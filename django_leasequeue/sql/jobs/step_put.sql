-- Purpose: keep what a step of a leased job has returned, if its worker still holds the lease. Who did the same step at the same time
--   waits here until the first one's transaction ends: one of them keeps it.
-- Parameters: seq, token, node, name, number (its place in their order), value (JSON text), delivery; now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, in the function; leasequeue_jobstep_pkey. Always on disk: nothing asks for less.
-- Pages: 60
-- Host: an insert; the function has its own settings.
-- Returns: an empty row if it is kept; none: the lease is not held, or it was kept before (step_held.sql).
INSERT INTO leasequeue_jobstep (seq, number, name, value, done_at, delivery)
SELECT %(seq)s::bigint, %(number)s::int, %(name)s::text, %(value)s::text::json, COALESCE(%(now)s::timestamptz, clock_timestamp()), %(delivery)s::int
WHERE leasequeue_holds(%(seq)s::bigint, %(token)s::bigint, %(node)s::text, %(now)s::timestamptz)
    AND (NOT %(autocommit)s::bool OR current_setting('synchronous_commit') <> 'off' OR set_config('synchronous_commit', 'on', true) = 'on')
ON CONFLICT (seq, name) DO NOTHING
