-- Purpose: keep what a step of a leased job has returned, if its worker still holds the lease. Who did the same step at the same time
--   waits here until the first one's transaction ends: one of them keeps it.
-- Parameters: seq, token, node, name, value (JSON text), delivery; now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_jobstep_pkey. Always on disk: nothing asks for less.
-- Pages: 60
-- Returns: a row if it is kept; none: the lease is not held, or somebody has kept it before (step_held.sql).
INSERT INTO leasequeue_jobstep (seq, name, value, done_at, delivery)
SELECT %(seq)s::bigint, %(name)s::text, %(value)s::text::json, COALESCE(%(now)s::timestamptz, clock_timestamp()), %(delivery)s::int
FROM leasequeue_claim c
WHERE c.token = %(token)s::bigint AND c.node = %(node)s::text AND %(seq)s::bigint = ANY (c.seqs)
    AND (c.deadline >= COALESCE(%(now)s::timestamptz, clock_timestamp())
        OR (SELECT q.late_ack FROM leasequeue_queue q WHERE q.id = c.queue_id) = 'accept')
ON CONFLICT (seq, name) DO NOTHING
RETURNING seq, CASE WHEN %(autocommit)s::bool AND current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
