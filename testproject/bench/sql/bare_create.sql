-- Purpose: the barest table that jobs can be kept in: the payload columns of ours, and whether a job is taken.
CREATE TABLE leasequeue_bench_job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text, name text, data jsonb, leased_at timestamptz
)
