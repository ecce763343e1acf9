-- Purpose: note why the steps of a leased job are to be undone, or that they are, if its worker holds the lease.
-- Parameters: seq, token, node, change (JSON text), most (its max_deliveries from then on; null: unchanged), repeats (a
--   delivery whose failed attempt is forgotten, as the end of the job notes that failure again; null: none); now,
--   autocommit.
-- Index: leasequeue_jobstep_pkey, leasequeue_job_pkey, leasequeue_attempt_job; leasequeue_claim_pkey,
--   leasequeue_queue_pkey, in the function. Always on disk.
-- Pages: 70
WITH noted AS (
    UPDATE leasequeue_jobstep SET value = (value::text::jsonb || %(change)s::text::jsonb)::json
    WHERE ctid = (SELECT s.ctid FROM leasequeue_jobstep s
            WHERE s.seq = %(seq)s::bigint AND s.name = '$undo' OFFSET 0)
        AND leasequeue_holds(%(seq)s::bigint, %(token)s::bigint, %(node)s::text, %(now)s::timestamptz,
            NOT %(autocommit)s::bool)
        AND set_config('synchronous_commit', 'on', true) = 'on'
    RETURNING seq
), most AS (
    UPDATE leasequeue_job SET max_deliveries = %(most)s::int
    WHERE seq = ANY (ARRAY(SELECT seq FROM noted WHERE %(most)s::int IS NOT NULL))
), forgotten AS (
    DELETE FROM leasequeue_attempt WHERE id = ANY (ARRAY(SELECT a.id FROM noted CROSS JOIN LATERAL (
        SELECT id FROM leasequeue_attempt WHERE seq = noted.seq AND delivery = %(repeats)s::int
        ORDER BY id + 0 DESC LIMIT 1) a))
)
SELECT true FROM noted
