-- Purpose: the open cohort of a queue, in order of arrival. The dealer holds cohort_lock. Waiters whose server
--   died are left out after some seconds, and removed after a minute.
-- Parameters: queue (id), size (claimers at most), now.
-- Index: leasequeue_waiter_open, leasequeue_claimwaiter_pkey.
-- Pages: 30
WITH clock AS MATERIALIZED (SELECT {now()} AS now), removed AS (
    DELETE FROM leasequeue_claimwaiter WHERE id = ANY (ARRAY(
        SELECT x.id FROM leasequeue_claimwaiter x WHERE x.closes_at < (SELECT now FROM clock) - interval '1 minute'
        ORDER BY x.id LIMIT 100 FOR UPDATE SKIP LOCKED))
)
SELECT x.id, x.node, x.size, x.lease_ms, x.connection FROM leasequeue_claimwaiter x
WHERE x.queue_id = %(queue)s::bigint AND x.dealt_at IS NULL
    AND x.closes_at > (SELECT now FROM clock) - interval '10 seconds'
ORDER BY x.id LIMIT %(size)s::int
