-- Purpose: make a queue (or log) with its options, its first rank and its state; an existing one is left alone.
-- Parameters: project, name, config (json object with every option), tasks (whether it is made for a task), now. The
--   options stand in conf/queue_options.py.
-- Index: leasequeue_queue_name.
-- Pages: 60
-- Returns: the id of the new queue; nothing if it was there. Workers that take all queues are told of it.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), new AS (
    INSERT INTO leasequeue_queue (project, name, dead_lettered, holds_tasks, created_at, updated_at, /*options*/)
    SELECT %(project)s, %(name)s, 0, %(tasks)s::bool, clock.now, clock.now, o.*
    FROM clock, jsonb_to_record(%(config)s::jsonb) AS o(/*typed options*/)
    ON CONFLICT (project, name) DO NOTHING
    RETURNING id, type
), ranks AS (
    INSERT INTO leasequeue_queuerank (queue_id, rank) SELECT id, 0 FROM new WHERE type = 'queue'
), states AS (
    INSERT INTO leasequeue_topicstate (queue_id) SELECT id FROM new
)
SELECT id, pg_notify({channel.jobs}, 'n')::text FROM new
