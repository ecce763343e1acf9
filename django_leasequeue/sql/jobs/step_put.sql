-- Purpose: keep what a step of a leased job has returned, if its worker still holds the lease. Who did the same step at the same time
--   waits here until the first one's transaction ends: one of them keeps it.
-- Parameters: seq, token, node, name, value (JSON text), delivery; now, autocommit.
-- Index: leasequeue_claim_pkey, leasequeue_queue_pkey, leasequeue_jobstep_pkey. Always on disk: nothing asks for less.
-- Pages: 60
-- Returns: whether the lease is held, whether the step is kept (false: somebody has kept it before).
WITH k AS MATERIALIZED (
    SELECT c.token FROM leasequeue_claim c CROSS JOIN LATERAL (SELECT q.late_ack FROM leasequeue_queue q WHERE q.id = c.queue_id OFFSET 0) q
    WHERE c.token = %(token)s::bigint AND c.node = %(node)s::text AND %(seq)s::bigint = ANY (c.seqs)
        AND (q.late_ack = 'accept' OR c.deadline >= COALESCE(%(now)s::timestamptz, clock_timestamp()))
), kept AS (
    INSERT INTO leasequeue_jobstep (seq, name, value, done_at, delivery)
    SELECT %(seq)s::bigint, %(name)s::text, %(value)s::text::json, COALESCE(%(now)s::timestamptz, clock_timestamp()),
        %(delivery)s::int
    WHERE EXISTS (SELECT FROM k)
    ON CONFLICT (seq, name) DO NOTHING RETURNING seq
)
SELECT EXISTS (SELECT FROM k), EXISTS (SELECT FROM kept),
    CASE WHEN %(autocommit)s::bool AND current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
