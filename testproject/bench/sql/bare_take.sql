-- Purpose: the ceiling of a worker that waits: take n jobs out in one statement, in a transaction that ends when they are done.
-- Parameters: size.
-- Index: primary key.
DELETE FROM leasequeue_bench_job WHERE id = ANY (ARRAY(
    SELECT id FROM leasequeue_bench_job ORDER BY id LIMIT %(size)s::int FOR UPDATE SKIP LOCKED))
RETURNING id, key, name, data::text
