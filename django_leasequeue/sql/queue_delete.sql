-- Purpose: delete a queue with everything of it but its events, and tell its readers.
-- Parameters: project, name, if_empty (refuse while there are jobs).
-- Index: leasequeue_queue_name, leasequeue_job_ready and its partial siblings, leasequeue_claim_deadline.
-- Returns: the number of queues deleted (0 or 1), whether jobs stood in the way. The jobs of a large queue are removed
--   afterwards in batches (orphans.sql): what the statement removes is the queue, its claims, floors and samples.
WITH q AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(name)s FOR UPDATE
), busy AS MATERIALIZED (
    SELECT %(if_empty)s::bool AND EXISTS (
        SELECT FROM q, LATERAL (SELECT FROM leasequeue_job j WHERE j.queue_id = q.id LIMIT 1) x) AS yes
), gone AS (
    DELETE FROM leasequeue_queue USING q, busy WHERE leasequeue_queue.id = q.id AND NOT busy.yes
    RETURNING leasequeue_queue.id
), claims AS (
    DELETE FROM leasequeue_claim WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
), floors AS (
    DELETE FROM leasequeue_queuefloor WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
), samples AS (
    DELETE FROM leasequeue_queuestat WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
), states AS (
    DELETE FROM leasequeue_topicstate WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
), keys AS (
    DELETE FROM leasequeue_idempotencykey WHERE queue_id = ANY (ARRAY(SELECT id FROM gone))
)
SELECT (SELECT count(*) FROM gone), (SELECT yes FROM busy), (SELECT id FROM gone),
    (SELECT pg_notify('leasequeue_topics', 'd' || id)::text || pg_notify('leasequeue', 'q' || id)::text FROM gone)
