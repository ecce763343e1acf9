-- Purpose: turns of rates at times that no rate has set since the clock went back are due now.
-- Parameters: queues (ids; null: all), now.
-- Index: leasequeue_flowturn_due from its end, leasequeue_limitkey_pkey, leasequeue_limit_pkey. The latest 100 turns of
--   each queue.
-- Pages: 20 + 120 a row
WITH clock AS MATERIALIZED (SELECT {now()} AS now), ahead AS MATERIALIZED (
    SELECT u.id, u.place FROM clock CROSS JOIN leasequeue_queue q CROSS JOIN LATERAL (
        SELECT u.ctid AS place, u.id, u.at, u.key FROM leasequeue_flowturn u
        WHERE u.queue_id = q.id AND u.at > clock.now
        ORDER BY u.at DESC LIMIT 100 FOR UPDATE SKIP LOCKED) u
    CROSS JOIN LATERAL (SELECT k.limit_id FROM leasequeue_limitkey k WHERE k.id = u.key OFFSET 0) k
    CROSS JOIN LATERAL (SELECT l.per_ms FROM leasequeue_limit l WHERE l.id = k.limit_id OFFSET 0) l
    WHERE (%(queues)s::bigint[] IS NULL OR q.id = ANY (%(queues)s::bigint[]))
        AND (u.at <= clock.now + 2 * l.per_ms * interval '1 ms') IS NOT TRUE
), mended AS (
    UPDATE leasequeue_flowturn SET at = (SELECT now FROM clock) WHERE ctid = ANY (ARRAY(SELECT place FROM ahead))
    RETURNING id
)
SELECT count(*) FROM mended
