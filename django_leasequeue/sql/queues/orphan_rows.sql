-- Purpose: remove floors, ranks, states, samples and keys of writes of deleted queues.
-- Index: these tables as a whole, against leasequeue_queue_pkey: run by the janitor, seldom.
-- Pages: whole tables, small ones, once in a while.
WITH gone AS MATERIALIZED (
    SELECT kept.queue_id FROM (
        SELECT queue_id FROM leasequeue_queuefloor UNION SELECT queue_id FROM leasequeue_queuerank
        UNION SELECT queue_id FROM leasequeue_topicstate UNION SELECT queue_id FROM leasequeue_queuestat
        UNION SELECT queue_id FROM leasequeue_idempotencykey) kept
    WHERE NOT EXISTS (SELECT FROM leasequeue_queue q WHERE q.id = kept.queue_id)
), floors AS (
    DELETE FROM leasequeue_queuefloor WHERE queue_id = ANY (ARRAY(SELECT queue_id FROM gone)) RETURNING 1
), ranks AS (
    DELETE FROM leasequeue_queuerank WHERE queue_id = ANY (ARRAY(SELECT queue_id FROM gone)) RETURNING 1
), states AS (
    DELETE FROM leasequeue_topicstate WHERE queue_id = ANY (ARRAY(SELECT queue_id FROM gone)) RETURNING 1
), samples AS (
    DELETE FROM leasequeue_queuestat WHERE queue_id = ANY (ARRAY(SELECT queue_id FROM gone)) RETURNING 1
), keys AS (
    DELETE FROM leasequeue_idempotencykey WHERE queue_id = ANY (ARRAY(SELECT queue_id FROM gone)) RETURNING 1
)
SELECT (SELECT count(*) FROM floors) + (SELECT count(*) FROM ranks) + (SELECT count(*) FROM states)
    + (SELECT count(*) FROM samples) + (SELECT count(*) FROM keys)
