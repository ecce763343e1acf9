-- Purpose: the oldest records of a topic, leased ones too, that exceed its cap (see remove.sql). The
--   writer holds cap_lock.
-- Parameters: queue (id), records and bytes (how many must go at least; 0: none for that reason), size.
-- Index: leasequeue_ready_pkey, the fresh lane from the floor on; leasequeue_ready_moved, leasequeue_record_pkey,
--   leasequeue_delayed_due, leasequeue_dead_died, leasequeue_claim_deadline, leasequeue_job_pkey.
-- Pages: 20 + 0.3 a row
WITH live AS MATERIALIZED (
    {ready_of(ORDER BY r.position LIMIT %(size)s::int)}
    UNION ALL
    (SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = %(queue)s::bigint AND NOT r.position = r.seq
        ORDER BY r.seq LIMIT %(size)s::int)
    UNION ALL
    (SELECT o.seq FROM leasequeue_record o WHERE o.queue_id = %(queue)s::bigint ORDER BY o.seq LIMIT %(size)s::int)
    UNION ALL
    SELECT d.seq FROM leasequeue_delayed d WHERE d.queue_id = %(queue)s::bigint
    UNION ALL
    SELECT x.seq FROM leasequeue_deadletter x WHERE x.queue_id = %(queue)s::bigint AND x.in_place
    UNION ALL
    SELECT u.seq FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    WHERE c.queue_id = %(queue)s::bigint
)
SELECT u.seq FROM (
    SELECT j.seq, row_number() OVER w AS n, sum(j.bytes) OVER w - j.bytes AS before FROM (
        SELECT j.seq, {bytes(j)} AS bytes
        FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(SELECT DISTINCT seq
            FROM live ORDER BY seq LIMIT %(size)s::int))) j
    WINDOW w AS (ORDER BY j.seq ROWS UNBOUNDED PRECEDING)) u
WHERE u.n <= %(records)s::bigint OR u.before < %(bytes)s::bigint
