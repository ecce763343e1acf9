-- Purpose: dead letters of one queue as a week of failures leaves them: 200 causes, some of them often, with payload and error.
-- Parameters: queue (id), count.
-- Index: none.
-- Returns: nothing.
INSERT INTO leasequeue_job (queue_id, position, rank, state, created_at, deliveries, key, tag, name, data, dead_at,
    error_type, error, fingerprint, errors)
SELECT %(queue)s::bigint, n, 0, 3, now() - interval '8 days', 5, gen_random_uuid()::text,
    CASE WHEN n %% 10 = 0 THEN 'tag-' || n %% 7 END, 'bench.tasks.task_' || cause %% 12,
    jsonb_build_object('args', jsonb_build_array(n), 'kwargs', jsonb_build_object('customer', n %% 5000)),
    now() - random() * interval '7 days', 'bench.errors.Error' || cause, 'order ' || n || ' could not be charged',
    'print-' || cause, jsonb_build_array(jsonb_build_object('at', now(), 'type', 'bench.errors.Error' || cause,
        'message', 'order ' || n || ' could not be charged', 'traceback', repeat('File "shop.py", line 7, in charge ', 20)))
FROM (SELECT n, floor(200 * power(random(), 3))::int AS cause FROM generate_series(1, %(count)s::int) AS n) s
