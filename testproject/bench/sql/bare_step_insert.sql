-- Purpose: the ceiling of a durable step, and of an event: one row.
-- Parameters: job, name, value (JSON text).
INSERT INTO leasequeue_bench_step (job, name, value) VALUES (%(job)s, %(name)s, %(value)s)
