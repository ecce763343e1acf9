-- Purpose: record the value of a step of a leased job, if its worker still holds the lease. Who did the same step at
--   the same time waits here until the first one's transaction ends: one of them keeps it.
-- Parameters: seq, token, node, name, number (its place in their order), value (JSON text), delivery, undo (how it is
--   undone; null: not), locks (in a transaction: nobody takes the job out before its end; not if that ends the job
--   itself); now, autocommit.
-- Index: leasequeue_job_pkey, leasequeue_claim_pkey, leasequeue_queue_pkey, in the function; leasequeue_jobstep_pkey.
--   Always on disk: nothing asks for less.
-- Pages: 60
-- Returns: if it is kept, the mark that the worker set on the transaction (null or empty: none);
--   no row: the lease is not held, or it was kept before (step_held.sql).
{keeps_host_settings(an insert; the function has its own settings)}
INSERT INTO leasequeue_jobstep (seq, number, name, value, done_at, delivery, undo)
SELECT %(seq)s::bigint, %(number)s::int, %(name)s::text, %(value)s::text::json, {now()}, %(delivery)s::int,
    %(undo)s::text
WHERE leasequeue_holds(%(seq)s::bigint, %(token)s::bigint, %(node)s::text, %(now)s::timestamptz,
        %(locks)s::bool AND NOT %(autocommit)s::bool)
    AND (NOT %(autocommit)s::bool OR current_setting('synchronous_commit') <> 'off'
        OR set_config('synchronous_commit', 'on', true) = 'on')
ON CONFLICT (seq, name) DO NOTHING
RETURNING current_setting('leasequeue.transaction', true)
