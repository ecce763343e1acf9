-- Purpose: the numbers of a topic's records below a number, leased ones too (see remove.sql); a bounded batch.
-- Parameters: queue (id), before (seq, exclusive), size.
-- Index: leasequeue_record_pkey, leasequeue_ready_pkey, leasequeue_ready_moved, leasequeue_delayed_due,
--   leasequeue_dead_died, leasequeue_claim_deadline: entries of this topic only.
-- Pages: 20 + 0.3 a row
SELECT x.seq FROM (
    (SELECT o.seq FROM leasequeue_record o WHERE o.queue_id = %(queue)s::bigint AND o.seq < %(before)s::bigint
        ORDER BY o.seq LIMIT %(size)s::int)
    UNION ALL
    {ready_of(AND r.position = r.seq AND r.position < %(before)s::bigint ORDER BY r.position LIMIT %(size)s::int)}
    UNION ALL
    (SELECT r.seq FROM leasequeue_ready r
        WHERE r.queue_id = %(queue)s::bigint AND NOT r.position = r.seq AND r.seq < %(before)s::bigint
        ORDER BY r.seq LIMIT %(size)s::int)
    UNION ALL
    (SELECT d.seq FROM leasequeue_delayed d WHERE d.queue_id = %(queue)s::bigint AND d.seq < %(before)s::bigint
        ORDER BY d.available_at LIMIT %(size)s::int)
    UNION ALL
    (SELECT x.seq FROM leasequeue_deadletter x WHERE x.queue_id = %(queue)s::bigint AND x.in_place
        AND x.seq < %(before)s::bigint
        ORDER BY x.dead_at, x.seq + 0 LIMIT %(size)s::int)
    UNION ALL
    (SELECT u.seq FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
        WHERE c.queue_id = %(queue)s::bigint AND u.seq < %(before)s::bigint LIMIT %(size)s::int)
) x LIMIT %(size)s::int
