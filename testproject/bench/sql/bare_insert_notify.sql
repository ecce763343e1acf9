-- Purpose: the ceiling of an enqueue that wakes a waiting worker.
-- Parameters: key, name, data, channel.
WITH i AS (INSERT INTO leasequeue_bench_job (key, name, data) VALUES (%(key)s, %(name)s, %(data)s) RETURNING id)
SELECT id, pg_notify(%(channel)s, '')::text FROM i
