-- Purpose: away with the ceiling's tables.
DROP TABLE IF EXISTS leasequeue_bench_job, leasequeue_bench_result, leasequeue_bench_step
