-- Purpose: the barest table that steps can be kept in.
CREATE TABLE leasequeue_bench_step (job bigint, name text, value json, PRIMARY KEY (job, name))
