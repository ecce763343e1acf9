-- Purpose: the numbers of jobs to purge, by state, number and tag (see remove.sql); a bounded batch.
-- Parameters: queue (id), states (int[]), before (seq, exclusive; null: all), tag, tag_prefix (null: any), size.
-- Index: leasequeue_ready_pkey, leasequeue_delayed_due, leasequeue_record_pkey, with a tag leasequeue_ready_tag,
--   leasequeue_delayed_tag, leasequeue_record_tag; leasequeue_dead_died; leased ones: the claims of the queue. An
--   operator's statement: among leased and dead jobs, and with a prefix, it reads past those whose tag is another.
-- Pages: 20 + 1.4 a row
SELECT x.seq FROM (
    SELECT r.seq, r.tag FROM leasequeue_ready r
    WHERE %(tag)s::text IS NULL AND r.queue_id = %(queue)s::bigint AND {READY} = ANY (%(states)s::int[])
    UNION ALL
    SELECT r.seq, r.tag FROM leasequeue_ready r
    WHERE r.tag = %(tag)s::text AND r.queue_id = %(queue)s::bigint AND {READY} = ANY (%(states)s::int[])
    UNION ALL
    SELECT d.seq, d.tag FROM leasequeue_delayed d
    WHERE %(tag)s::text IS NULL AND d.queue_id = %(queue)s::bigint AND {DELAYED} = ANY (%(states)s::int[])
    UNION ALL
    SELECT d.seq, d.tag FROM leasequeue_delayed d
    WHERE d.tag = %(tag)s::text AND d.queue_id = %(queue)s::bigint AND {DELAYED} = ANY (%(states)s::int[])
    UNION ALL
    SELECT u.seq, CASE WHEN COALESCE(%(tag)s::text, %(tag_prefix)s::text) IS NOT NULL
        THEN (SELECT j.tag FROM leasequeue_job j WHERE j.seq = u.seq) END
    FROM leasequeue_claim c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    WHERE c.queue_id = %(queue)s::bigint AND {LEASED} = ANY (%(states)s::int[])
    UNION ALL
    SELECT x.seq, CASE WHEN COALESCE(%(tag)s::text, %(tag_prefix)s::text) IS NOT NULL
        THEN (SELECT j.tag FROM leasequeue_job j WHERE j.seq = x.seq) END
    FROM leasequeue_deadletter x WHERE x.queue_id = %(queue)s::bigint AND x.in_place
        AND {DEAD} = ANY (%(states)s::int[])
    UNION ALL
    SELECT o.seq, o.tag FROM leasequeue_record o
    WHERE %(tag)s::text IS NULL AND o.queue_id = %(queue)s::bigint AND {RECORD} = ANY (%(states)s::int[])
    UNION ALL
    SELECT o.seq, o.tag FROM leasequeue_record o
    WHERE o.tag = %(tag)s::text AND o.queue_id = %(queue)s::bigint AND {RECORD} = ANY (%(states)s::int[])
) x
WHERE (%(before)s::bigint IS NULL OR x.seq < %(before)s::bigint)
    AND (%(tag)s::text IS NULL OR x.tag = %(tag)s::text)
    AND (%(tag_prefix)s::text IS NULL OR starts_with(x.tag, %(tag_prefix)s::text))
LIMIT %(size)s::int
