-- Purpose: remove dead jobs whose retention is over, by number, so that their keys are free.
-- Parameters: seqs, now.
-- Index: leasequeue_job_pkey.
-- Returns: the seqs that went.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), gone AS (
    DELETE FROM leasequeue_job j USING t
    WHERE j.seq = ANY (%(seqs)s::bigint[]) AND j.state = 3 AND j.expires_at <= t.now
    RETURNING j.seq, j.queue_id, j.deliveries, j.created_at, j.name, t.now
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, deliveries, enqueued_at, name, detail)
    SELECT pg_current_xact_id()::text::bigint, g.now, g.queue_id, g.seq, 10, g.deliveries, g.created_at, g.name,
        '{"reason": "ttl"}'::jsonb
    FROM gone g
)
SELECT seq FROM gone
