-- Purpose: the ceiling of an ack whose caller waits for it.
-- Parameters: ids (literal of an array), channel.
WITH d AS (DELETE FROM leasequeue_bench_job WHERE id = ANY (%(ids)s::bigint[]) RETURNING id, key)
SELECT id, pg_notify(%(channel)s, key)::text FROM d
