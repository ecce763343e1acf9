-- Purpose: the queues and logs that have a message, a record or a dead job past its time.
-- Parameters: since (a time up to which there was none left; null: look from the beginning), now.
-- Index: leasequeue_job_expires: one entry a queue, or what is dead since that time.
-- Returns: the time of the look, then one row a queue: queue id, time.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now,
        COALESCE(%(since)s::timestamptz, '-infinity') AS since
)
SELECT NULL::bigint, t.now FROM t
UNION ALL
SELECT q.id, t.now FROM leasequeue_queue q CROSS JOIN t CROSS JOIN LATERAL (
    SELECT FROM leasequeue_job j
    WHERE j.queue_id = q.id AND j.expires_at IS NOT NULL AND NOT j.state = 2
        AND j.expires_at > (SELECT since FROM t) AND j.expires_at <= (SELECT now FROM t) LIMIT 1) x
