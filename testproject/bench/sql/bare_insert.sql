-- Purpose: the ceiling of enqueue: one row.
-- Parameters: key, name, data.
INSERT INTO leasequeue_bench_job (key, name, data) VALUES (%(key)s, %(name)s, %(data)s) RETURNING id
