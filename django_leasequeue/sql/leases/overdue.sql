-- Purpose: end the leases of a queue that were not renewed for some time, so that the next sweep brings their jobs back.
-- Parameters: queue (id), idle (ms without renewal), size (claims), now.
-- Index: leasequeue_claim_deadline, leasequeue_claim_pkey: the live claims of the queue.
-- Pages: 30, and the live claims
-- Returns: the seqs. When a claim was renewed last is its deadline less its length, but not before it was made.
WITH t AS MATERIALIZED (SELECT {now()} AS now), k AS MATERIALIZED (
    SELECT c.token, c.part FROM leasequeue_claim c, t
    WHERE c.queue_id = %(queue)s::bigint AND c.deadline >= (SELECT now FROM t)
        AND GREATEST(c.created_at, c.deadline - c.ttl_ms * interval '1 ms') < t.now - %(idle)s::bigint * interval '1 ms'
    ORDER BY c.deadline LIMIT %(size)s::int FOR UPDATE OF c SKIP LOCKED
), x AS (
    UPDATE leasequeue_claim c SET deadline = t.now - interval '1 ms' FROM k, t
    WHERE c.token = k.token AND c.part = k.part AND c.token = ANY (ARRAY(SELECT token FROM k))
    RETURNING c.seqs
)
SELECT unnest(x.seqs) FROM x
