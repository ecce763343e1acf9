-- Purpose: remove the rows of workers that have not been seen for long: they died.
-- Parameters: days, size, now.
-- Index: leasequeue_worker_seen, leasequeue_worker_pkey.
-- Pages: 20 + 0.1 a row
DELETE FROM leasequeue_worker WHERE id = ANY (ARRAY(
    SELECT id FROM leasequeue_worker
    WHERE seen_at < (SELECT {now()} - %(days)s::float8 * interval '1 day') ORDER BY seen_at LIMIT %(size)s::int))
RETURNING node
