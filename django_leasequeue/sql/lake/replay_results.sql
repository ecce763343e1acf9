-- Purpose: staged replays of jobs that failed for good: take each failed result out, and forget those that are not there any
--   more (replayed before, expired).
-- Parameters: parts, project.
-- Index: leasequeue_lakestage_part, the primary key of the results.
WITH t AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_xact_id()::text::bigint AS txid
), d AS MATERIALIZED (
    SELECT r.seq FROM leasequeue_jobresult r JOIN leasequeue_queue q ON q.id = r.queue_id
    WHERE r.seq = ANY (ARRAY(SELECT source_seq FROM leasequeue_lakestage WHERE part = ANY (%(parts)s::uuid[])))
        AND q.project = %(project)s::text AND r.state = 2
    ORDER BY r.seq FOR UPDATE OF r SKIP LOCKED
), gone AS (
    DELETE FROM leasequeue_jobresult r USING d WHERE r.seq = d.seq RETURNING r.seq, r.queue_id, r.name, r.created_at
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, enqueued_at, name, detail)
    SELECT t.txid, t.now, g.queue_id, g.seq, 9, g.created_at, g.name, '{"by": "spark"}'::jsonb FROM gone g, t
), first AS MATERIALIZED (
    SELECT min(s.id) AS id FROM leasequeue_lakestage s JOIN d ON d.seq = s.source_seq
    WHERE s.part = ANY (%(parts)s::uuid[]) GROUP BY s.source_seq
)
DELETE FROM leasequeue_lakestage s
WHERE s.part = ANY (%(parts)s::uuid[]) AND NOT EXISTS (SELECT FROM first WHERE first.id = s.id)
