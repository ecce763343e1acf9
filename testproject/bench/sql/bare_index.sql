-- Purpose: what waits, in order. Measured: as fast as without it when the table is small, and needed when it is not.
CREATE INDEX leasequeue_bench_ready ON leasequeue_bench_job (id) WHERE leased_at IS NULL
