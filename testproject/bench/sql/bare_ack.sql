-- Purpose: the ceiling of an ack: delete n jobs, durably.
-- Parameters: ids (literal of an array).
DELETE FROM leasequeue_bench_job WHERE id = ANY (%(ids)s::bigint[])
