-- Purpose: end the leases of a queue that were not renewed for some time, so that the next sweep brings their jobs
--   back.
-- Parameters: queue (id), idle (ms without renewal), size (claims), now.
-- Index: leasequeue_claim_deadline, leasequeue_claim_pkey: the live claims of the queue.
-- Pages: 30, and the live claims
-- Returns: the seqs. When a claim was renewed last is its deadline less its length, but not before it was made.
WITH clock AS MATERIALIZED (SELECT {now()} AS now), idle AS MATERIALIZED (
    SELECT c.token, c.part FROM leasequeue_claim c, clock
    WHERE c.queue_id = %(queue)s::bigint AND c.deadline >= (SELECT now FROM clock)
        AND GREATEST(c.created_at,
            c.deadline - c.ttl_ms * interval '1 ms') < clock.now - %(idle)s::bigint * interval '1 ms'
    ORDER BY c.deadline LIMIT %(size)s::int FOR UPDATE OF c SKIP LOCKED
), ended AS (
    UPDATE leasequeue_claim c SET deadline = clock.now - interval '1 ms' FROM idle, clock
    WHERE c.token = idle.token AND c.part = idle.part AND c.token = ANY (ARRAY(SELECT token FROM idle))
    RETURNING c.seqs
)
SELECT unnest(seqs) FROM ended
