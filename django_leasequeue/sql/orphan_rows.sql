-- Purpose: remove floors, claims and samples whose queue is gone.
-- Parameters: none.
-- Index: these tables as a whole, against leasequeue_queue_pkey: run by the janitor, seldom.
-- Returns: how many rows went.
WITH floors AS (
    DELETE FROM leasequeue_queuefloor f WHERE NOT EXISTS (SELECT FROM leasequeue_queue q WHERE q.id = f.queue_id)
    RETURNING 1
), claims AS (
    DELETE FROM leasequeue_claim c WHERE NOT EXISTS (SELECT FROM leasequeue_queue q WHERE q.id = c.queue_id)
    RETURNING 1
), samples AS (
    DELETE FROM leasequeue_queuestat s WHERE s.queue_id = ANY (ARRAY(
        SELECT DISTINCT x.queue_id FROM leasequeue_queuestat x
        WHERE NOT EXISTS (SELECT FROM leasequeue_queue q WHERE q.id = x.queue_id)))
    RETURNING 1
)
SELECT (SELECT count(*) FROM floors) + (SELECT count(*) FROM claims) + (SELECT count(*) FROM samples)
