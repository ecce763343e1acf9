-- Purpose: remove the records of a topic below a number, leased ones too; a bounded batch at a time.
-- Parameters: queue (id), before (seq, exclusive), size (of each kind), now.
-- Index: leasequeue_job_record, leasequeue_job_ready, leasequeue_job_delayed, leasequeue_job_dead,
--   leasequeue_claim_deadline, leasequeue_job_pkey, leasequeue_topicstate_pkey: entries of this topic only.
-- Returns: how many went.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), l AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.state = 4 AND j.seq < %(before)s::bigint
    ORDER BY j.seq LIMIT %(size)s::int FOR UPDATE
), r AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.state = 0 AND j.seq < %(before)s::bigint
    ORDER BY j.rank, j.position LIMIT %(size)s::int FOR UPDATE
), d AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.state = 1 AND j.seq < %(before)s::bigint
    ORDER BY j.available_at LIMIT %(size)s::int FOR UPDATE
), x AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.dead_at IS NOT NULL AND j.state = 3
        AND j.seq < %(before)s::bigint LIMIT %(size)s::int FOR UPDATE
), h AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j
    WHERE j.seq = ANY (ARRAY(SELECT unnest(c.seqs) FROM leasequeue_claim c WHERE c.queue_id = %(queue)s::bigint))
        AND j.queue_id = %(queue)s::bigint AND j.state = 2 AND j.seq < %(before)s::bigint
    ORDER BY j.seq LIMIT %(size)s::int FOR UPDATE
), gone AS (
    DELETE FROM leasequeue_job j USING t WHERE j.seq = ANY (ARRAY(SELECT seq FROM l UNION ALL SELECT seq FROM r
        UNION ALL SELECT seq FROM d UNION ALL SELECT seq FROM x UNION ALL SELECT seq FROM h))
    RETURNING j.seq, j.queue_id, j.state, j.key, j.reply_to, j.created_at, j.name, j.node, j.claim, j.deliveries, t.now
), remembered AS (
    INSERT INTO leasequeue_topicstate AS s (queue_id, head_seq, last_write_at)
    SELECT queue_id, max(seq), max(created_at) FROM gone GROUP BY queue_id
    ON CONFLICT (queue_id) DO UPDATE SET head_seq = GREATEST(s.head_seq, excluded.head_seq),
        last_write_at = GREATEST(s.last_write_at, excluded.last_write_at), records = NULL, bytes = NULL
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at, name,
        detail)
    SELECT pg_current_xact_id()::text::bigint, g.now, g.queue_id, g.seq, 10, g.node, g.deliveries, g.claim, g.created_at,
        g.name, '{"reason": "deleted"}'::jsonb
    FROM gone g WHERE g.state <> 4
)
SELECT count(*), count(CASE WHEN reply_to IS NOT NULL
        THEN (SELECT string_agg(pg_notify(c, seq || ':3:' || COALESCE(key, ''))::text, '')
            FROM string_to_table(reply_to, ' ') c) END),
    (SELECT count(pg_notify(split_part(c.connection, ':', 1), split_part(c.connection, ':', 2))::text)
        FROM leasequeue_claim c WHERE c.id = ANY (ARRAY(SELECT claim FROM gone)) AND c.connection IS NOT NULL)
FROM gone
