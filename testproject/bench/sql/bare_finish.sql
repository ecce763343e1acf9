-- Purpose: the ceiling of finishing with results kept: move n jobs to another table, durably.
-- Parameters: ids (literal of an array).
WITH d AS (DELETE FROM leasequeue_bench_job WHERE id = ANY (%(ids)s::bigint[]) RETURNING id, key)
INSERT INTO leasequeue_bench_result (id, key, finished_at, result) SELECT id, key, clock_timestamp(), 'null' FROM d
