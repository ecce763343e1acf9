-- Purpose: the numbers of a topic's records that have a tag, or a tag that begins so, leased ones too (see remove.sql);
--   a bounded batch.
-- Parameters: queue (id), low and high (bounds of the tags, both inclusive), before (seq, exclusive; null: any), size.
-- Index: leasequeue_record_tag, leasequeue_ready_tag, leasequeue_delayed_tag; leased and dead ones have no index of
--   tags: their jobs are looked up, all that the topic has (leasequeue_claim_deadline, leasequeue_dead_died,
--   leasequeue_job_pkey).
-- Pages: 20 + 0.9 a row
SELECT x.seq FROM (
    (SELECT o.seq FROM leasequeue_record o
        WHERE o.queue_id = %(queue)s::bigint AND o.tag BETWEEN %(low)s::text AND %(high)s::text
            AND (%(before)s::bigint IS NULL OR o.seq < %(before)s::bigint) LIMIT %(size)s::int)
    UNION ALL
    (SELECT r.seq FROM leasequeue_ready r
        WHERE r.queue_id = %(queue)s::bigint AND r.tag BETWEEN %(low)s::text AND %(high)s::text
            AND (%(before)s::bigint IS NULL OR r.seq < %(before)s::bigint) LIMIT %(size)s::int)
    UNION ALL
    (SELECT d.seq FROM leasequeue_delayed d
        WHERE d.queue_id = %(queue)s::bigint AND d.tag BETWEEN %(low)s::text AND %(high)s::text
            AND (%(before)s::bigint IS NULL OR d.seq < %(before)s::bigint) LIMIT %(size)s::int)
    UNION ALL
    SELECT j.seq FROM leasequeue_job j
    WHERE j.tag BETWEEN %(low)s::text AND %(high)s::text AND j.seq = ANY (ARRAY(
        SELECT u.seq FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
        WHERE c.queue_id = %(queue)s::bigint AND (%(before)s::bigint IS NULL OR u.seq < %(before)s::bigint)
        UNION ALL
        SELECT x.seq FROM leasequeue_deadletter x WHERE x.queue_id = %(queue)s::bigint AND x.in_place
            AND (SELECT q.type = 'queue' FROM leasequeue_queue q WHERE q.id = %(queue)s::bigint)
                AND (%(before)s::bigint IS NULL OR x.seq < %(before)s::bigint)))
) x LIMIT %(size)s::int
