-- Purpose: delete a queue with its own rows, and notify its readers. Its events stay; its jobs are removed
--   afterwards, a batch at a time (orphans.sql, orphan_jobs.sql).
-- Parameters: project, name.
-- Index: leasequeue_queue_name, leasequeue_floor_place, leasequeue_rank_place, leasequeue_stat_sample.
-- Pages: 100
WITH gone AS (
    DELETE FROM leasequeue_queue WHERE project = %(project)s AND name = %(name)s RETURNING id
), floors AS (
    DELETE FROM leasequeue_queuefloor WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
), ranks AS (
    DELETE FROM leasequeue_queuerank WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
), samples AS (
    DELETE FROM leasequeue_queuestat WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
), states AS (
    DELETE FROM leasequeue_topicstate WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
), keys AS (
    DELETE FROM leasequeue_idempotencykey WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT id, pg_notify({channel.jobs}, 'd' || id)::text || pg_notify({channel.jobs}, 'q' || id)::text FROM gone
