-- Purpose: staged replays of dead jobs: take each dead job out of its queue, and forget those that are not dead any more
--   (replayed before, redriven, cancelled). The job that the stage holds follows it in the same transaction.
-- Parameters: parts, project.
-- Index: leasequeue_lakestage_part, leasequeue_job_pkey.
WITH t AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_xact_id()::text::bigint AS txid
), d AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j JOIN leasequeue_queue q ON q.id = j.queue_id
    WHERE j.seq = ANY (ARRAY(SELECT source_seq FROM leasequeue_lakestage WHERE part = ANY (%(parts)s::uuid[])))
        AND q.project = %(project)s::text AND (j.state = 3 OR (j.state IN (0, 4) AND j.dead_at IS NOT NULL))
    ORDER BY j.seq FOR UPDATE OF j SKIP LOCKED
), gone AS (
    DELETE FROM leasequeue_job j USING d WHERE j.seq = d.seq RETURNING j.seq, j.queue_id, j.name, j.created_at
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, enqueued_at, name, detail)
    SELECT t.txid, t.now, g.queue_id, g.seq, 9, g.created_at, g.name, '{"by": "spark"}'::jsonb FROM gone g, t
), first AS MATERIALIZED (
    SELECT min(s.id) AS id FROM leasequeue_lakestage s JOIN d ON d.seq = s.source_seq
    WHERE s.part = ANY (%(parts)s::uuid[]) GROUP BY s.source_seq
)
DELETE FROM leasequeue_lakestage s
WHERE s.part = ANY (%(parts)s::uuid[]) AND NOT EXISTS (SELECT FROM first WHERE first.id = s.id)
