-- Purpose: the oldest records of a topic leave, leased ones too, and readers that come too late are told of the gap. The
--   writer holds cap_lock.
-- Parameters: queue (id), records and bytes (how many must go at least; 0: none for that reason), size, now.
-- Index: leasequeue_job_ready from the floor on, leasequeue_job_delayed, leasequeue_job_dead, leasequeue_job_record,
--   leasequeue_claim_deadline, leasequeue_job_pkey, leasequeue_topicstate_pkey. What others have locked is passed over.
-- Returns: records and bytes that went.
WITH t AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now
), r AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
        SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = f.queue_id AND j.rank = f.rank AND j.state = 0
            AND j.position >= f.value ORDER BY j.position LIMIT %(size)s::int FOR UPDATE SKIP LOCKED) j
    WHERE f.queue_id = %(queue)s::bigint AND f.kind = 0
), l AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.state = 4
    ORDER BY j.seq LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), d AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.state = 1
    ORDER BY j.seq LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), x AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = %(queue)s::bigint AND j.dead_at IS NOT NULL AND j.state = 3
    ORDER BY j.seq LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), h AS MATERIALIZED (
    SELECT j.seq FROM leasequeue_job j
    WHERE j.seq = ANY (ARRAY(SELECT unnest(c.seqs) FROM leasequeue_claim c WHERE c.queue_id = %(queue)s::bigint))
        AND j.queue_id = %(queue)s::bigint AND j.state = 2
    ORDER BY j.seq LIMIT %(size)s::int FOR UPDATE SKIP LOCKED
), o AS MATERIALIZED (
    SELECT u.seq, row_number() OVER w AS n, sum(u.bytes) OVER w - u.bytes AS before FROM (
        SELECT j.seq, COALESCE(octet_length(j.data::text), 0) + COALESCE(octet_length(j.meta::text), 0)
            + COALESCE(octet_length(j.body), 0) AS bytes
        FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(
            SELECT seq FROM (SELECT seq FROM r UNION ALL SELECT seq FROM l UNION ALL SELECT seq FROM d
                UNION ALL SELECT seq FROM x UNION ALL SELECT seq FROM h) y ORDER BY seq LIMIT %(size)s::int))
    ) u WINDOW w AS (ORDER BY u.seq)
), gone AS (
    DELETE FROM leasequeue_job j USING t
    WHERE j.seq = ANY (ARRAY(SELECT seq FROM o WHERE n <= %(records)s::bigint OR before < %(bytes)s::bigint))
    RETURNING j.seq, j.queue_id, j.state, j.key, j.reply_to, j.created_at, j.name, j.node, j.claim, j.deliveries, t.now,
        COALESCE(octet_length(j.data::text), 0) + COALESCE(octet_length(j.meta::text), 0) + COALESCE(octet_length(j.body), 0)
        AS bytes
), remembered AS (
    UPDATE leasequeue_topicstate s SET records = s.records - g.records, bytes = s.bytes - g.bytes,
        head_seq = GREATEST(s.head_seq, g.high), last_write_at = GREATEST(s.last_write_at, g.at),
        gap_from = LEAST(s.gap_from, g.low), gap_to = GREATEST(s.gap_to, g.high), gap_reason = 'cap',
        gap_count = s.gap_count + g.records
    FROM (SELECT count(*) AS records, sum(bytes)::bigint AS bytes, min(seq) AS low, max(seq) AS high,
        max(created_at) AS at FROM gone) g
    WHERE s.queue_id = %(queue)s::bigint AND g.records > 0
), events AS (
    INSERT INTO leasequeue_leaseevent (txid, occurred_at, queue_id, seq, kind, node, deliveries, claim, enqueued_at, name,
        detail)
    SELECT pg_current_xact_id()::text::bigint, g.now, g.queue_id, g.seq, 10, g.node, g.deliveries, g.claim, g.created_at,
        g.name, '{"reason": "cap"}'::jsonb
    FROM gone g WHERE g.state <> 4
)
SELECT count(*), COALESCE(sum(bytes), 0)::bigint,
    count(CASE WHEN reply_to IS NOT NULL
        THEN (SELECT string_agg(pg_notify(c, seq || ':3:' || COALESCE(key, ''))::text, '')
            FROM string_to_table(reply_to, ' ') c) END),
    (SELECT count(pg_notify(split_part(c.connection, ':', 1), split_part(c.connection, ':', 2))::text)
        FROM leasequeue_claim c WHERE c.id = ANY (ARRAY(SELECT claim FROM gone)) AND c.connection IS NOT NULL)
FROM gone
