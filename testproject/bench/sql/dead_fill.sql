-- Purpose: dead letters of one queue as a week of failures leaves them: 200 causes, some of them often, with payload and error.
-- Parameters: queue (id), count.
-- Index: none.
-- Returns: nothing.
WITH d AS MATERIALIZED (
    SELECT nextval('leasequeue_job_seq_seq') AS seq, s.n, s.cause, now() - random() * interval '7 days' AS dead_at,
        'bench.errors.Error' || s.cause AS error_type, 'order ' || s.n || ' could not be charged' AS error
    FROM (SELECT n, floor(200 * power(random(), 3))::int AS cause FROM generate_series(1, %(count)s::int) AS n) s
), jobs AS (
    INSERT INTO leasequeue_job (seq, queue_id, created_at, rank, key, tag, name, data)
    SELECT d.seq, %(queue)s::bigint, now() - interval '8 days', 0, gen_random_uuid()::text,
        CASE WHEN d.n %% 10 = 0 THEN 'tag-' || d.n %% 7 END, 'bench.tasks.task_' || d.cause %% 12,
        json_build_object('args', json_build_array(d.n), 'kwargs', json_build_object('customer', d.n %% 5000))
    FROM d
), letters AS (
    INSERT INTO leasequeue_deadletter (seq, queue_id, dead_at, deliveries, in_place, error_type, error, fingerprint)
    SELECT d.seq, %(queue)s::bigint, d.dead_at, 5, true, d.error_type, d.error, 'print-' || d.cause FROM d
)
INSERT INTO leasequeue_attempt (seq, queue_id, at, delivery, node, error_type, message, traceback, fingerprint)
SELECT d.seq, %(queue)s::bigint, d.dead_at, 5, 'bench', d.error_type, d.error,
    repeat('File "shop.py", line 7, in charge ', 20), 'print-' || d.cause
FROM d
