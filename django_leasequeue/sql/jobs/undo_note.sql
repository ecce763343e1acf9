-- Purpose: note why the steps of a leased job are to be undone, or that they are, if its worker holds the lease.
-- Parameters: seq, token, node, change (JSON text), most (its max_deliveries from then on; null: unchanged); now,
--   autocommit.
-- Index: leasequeue_jobstep_pkey, leasequeue_job_pkey; leasequeue_claim_pkey, leasequeue_queue_pkey, in the function.
--   Always on disk.
-- Pages: 60
-- Settings: the function has its own settings.
-- Returns: a row if it is noted.
{keeps_host_settings()}
WITH noted AS (
    UPDATE leasequeue_jobstep SET value = (value::text::jsonb || %(change)s::text::jsonb)::json
    WHERE seq = %(seq)s::bigint AND name = '$undo'
        AND leasequeue_holds(%(seq)s::bigint, %(token)s::bigint, %(node)s::text, %(now)s::timestamptz,
            NOT %(autocommit)s::bool)
        AND set_config('synchronous_commit', 'on', true) = 'on'
    RETURNING seq
), most AS (
    UPDATE leasequeue_job SET max_deliveries = %(most)s::int
    WHERE seq = ANY (ARRAY(SELECT seq FROM noted)) AND %(most)s::int IS NOT NULL
)
SELECT true FROM noted
