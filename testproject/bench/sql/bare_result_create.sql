-- Purpose: the barest table that results can be kept in.
CREATE TABLE leasequeue_bench_result (id bigint PRIMARY KEY, key text, finished_at timestamptz, result jsonb)
