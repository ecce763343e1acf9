-- Purpose: the ceiling of a bulk enqueue.
COPY leasequeue_bench_job (key, name, data) FROM STDIN
