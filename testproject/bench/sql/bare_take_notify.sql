-- Purpose: bare_take for callers that wait for the end of their jobs.
-- Parameters: size, channel.
-- Index: primary key.
WITH d AS (
    DELETE FROM leasequeue_bench_job WHERE id = ANY (ARRAY(
        SELECT id FROM leasequeue_bench_job ORDER BY id LIMIT %(size)s::int FOR UPDATE SKIP LOCKED))
    RETURNING id, key, name, data
)
SELECT id, key, name, data::text, pg_notify(%(channel)s, key)::text FROM d
