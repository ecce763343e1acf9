-- Purpose: empty the ceiling's tables between measurements.
TRUNCATE leasequeue_bench_job, leasequeue_bench_result, leasequeue_bench_step
