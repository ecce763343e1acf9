-- Purpose: remove samples past their retention, oldest first, a bounded batch at a time.
-- Parameters: days, size, now.
-- Index: leasequeue_stat_age, leasequeue_queuestat_pkey.
-- Pages: 20 + 3 a row
DELETE FROM leasequeue_queuestat WHERE id = ANY (ARRAY(
    SELECT id FROM leasequeue_queuestat
    WHERE sampled_at < (SELECT {now()} - %(days)s::float8 * interval '1 day') ORDER BY sampled_at LIMIT %(size)s::int))
RETURNING id
