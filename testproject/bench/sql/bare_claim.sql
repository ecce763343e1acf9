-- Purpose: the ceiling of a claim: take n jobs, in order, past what others hold. As little durable as ours.
-- Parameters: size.
-- Index: leasequeue_bench_ready, primary key.
WITH p AS MATERIALIZED (
    SELECT id FROM leasequeue_bench_job WHERE leased_at IS NULL ORDER BY id LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
)
UPDATE leasequeue_bench_job SET leased_at = clock_timestamp() WHERE id = ANY (ARRAY(SELECT id FROM p))
RETURNING id, key, name, data::text, set_config('synchronous_commit', 'off', true)
