-- Purpose: the queues that have a delayed job whose time has come.
-- Parameters: now.
-- Index: leasequeue_job_delayed from the floor on: one entry a queue.
-- Returns: queue id.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
)
SELECT f.queue_id FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
    SELECT FROM leasequeue_job j
    WHERE j.queue_id = f.queue_id AND j.state = 1
        AND j.available_at >= 'epoch'::timestamptz + f.value * interval '1 us'
        AND j.available_at <= (SELECT now FROM t) LIMIT 1) x
WHERE f.kind = 1
