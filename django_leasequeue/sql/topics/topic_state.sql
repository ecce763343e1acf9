-- Purpose: the state of a topic: its head, its earliest record, its size, its last write.
-- Parameters: project, topic (name), cap (entries of one place that are read at most), look (entries of all queues that
--   are read for the head where one has many delayed or dead jobs, or keeps results), now, autocommit.
-- Index: leasequeue_queue_name, leasequeue_topicstate_pkey, leasequeue_ready_pkey (the fresh lane from the floor on),
--   leasequeue_ready_moved, leasequeue_delayed_due, leasequeue_dead_died, leasequeue_record_pkey,
--   leasequeue_claim_deadline, leasequeue_job_pkey, leasequeue_floor_place; leasequeue_jobresult_pkey where results are
--   kept; leasequeue_event_seqs when the newest job is gone.
-- Pages: 40 + 0.4 a row
-- Returns: the fields of _Stands. A reader may begin behind the head: what it is told is on disk.
WITH topic AS MATERIALIZED (
    SELECT q.id, q.result_ttl_ms > 0 AS keeps, s.head_seq, s.last_write_at, {now()} AS now
    FROM leasequeue_queue q LEFT JOIN leasequeue_topicstate s ON s.queue_id = q.id
    WHERE q.project = %(project)s AND q.name = %(topic)s
), {lanes(topic)}, leased AS MATERIALIZED (
    SELECT u.seq FROM topic CROSS JOIN LATERAL (SELECT c.seqs FROM leasequeue_claim c WHERE c.queue_id = topic.id
        ORDER BY c.deadline DESC LIMIT 2 * %(cap)s::int) c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    LIMIT 2 * %(cap)s::int + 1
), live AS MATERIALIZED (
    SELECT r.seq FROM lanes CROSS JOIN LATERAL (
        SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = lanes.id AND r.rank = lanes.rank AND r.lane = lanes.lane
            AND r.position >= lanes.low
        ORDER BY r.position LIMIT %(cap)s::int) r
    UNION ALL
    SELECT r.seq FROM topic CROSS JOIN LATERAL (
        SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = topic.id AND NOT r.position = r.seq ORDER BY r.seq
        LIMIT 1) r
    UNION ALL
    SELECT d.seq FROM topic CROSS JOIN LATERAL (SELECT d.seq FROM leasequeue_delayed d WHERE d.queue_id = topic.id
        ORDER BY d.available_at LIMIT %(cap)s::int) d
    UNION ALL
    SELECT x.seq FROM topic CROSS JOIN LATERAL (SELECT x.seq, x.in_place FROM leasequeue_deadletter x
        WHERE x.queue_id = topic.id
        ORDER BY x.dead_at, x.seq + 0 LIMIT %(cap)s::int) x WHERE x.in_place
    UNION ALL
    SELECT o.seq FROM topic CROSS JOIN LATERAL (SELECT o.seq FROM leasequeue_record o WHERE o.queue_id = topic.id
        ORDER BY o.seq LIMIT %(cap)s::int) o
    UNION ALL
    SELECT seq FROM leased
), size AS MATERIALIZED (
    SELECT count(*) AS records, COALESCE(sum({bytes(j)}), 0)::bigint AS bytes
    FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(SELECT DISTINCT seq FROM live))
), head AS MATERIALIZED (
    SELECT topic.*, GREATEST(COALESCE(topic.head_seq, 0), (SELECT max(seq) FROM live),
        {heads()},
        (SELECT max(z.seq) FROM (SELECT z.seq, z.queue_id FROM leasequeue_delayed z ORDER BY z.seq DESC
            LIMIT %(look)s::int) z
            WHERE z.queue_id = topic.id),
        (SELECT max(z.seq) FROM (SELECT z.* FROM leasequeue_deadletter z ORDER BY z.seq DESC LIMIT %(look)s::int) z
            WHERE z.queue_id = topic.id AND z.in_place),
        -- An ack that keeps the result notes no head: the reaper does (heads.sql), of what has ended since then see
        -- here.
        (SELECT max(z.seq) FROM (SELECT z.seq, z.queue_id FROM leasequeue_jobresult z WHERE topic.keeps
            ORDER BY z.seq DESC LIMIT %(look)s::int) z WHERE z.queue_id = topic.id)) AS seq
    FROM topic
)
SELECT head.id,
    {past_ttl(head)} AS due,
    head.seq AS head_seq, (SELECT min(seq) FROM live) AS earliest_seq, COALESCE(
        (SELECT j.created_at FROM leasequeue_job j WHERE j.seq = head.seq),
        (SELECT e.occurred_at FROM leasequeue_leaseevent e WHERE head.seq > 0 AND e.low <= head.seq
            AND e.high >= head.seq
            AND head.seq = ANY (e.seqs) AND e.kind = {event.ENQUEUED} AND e.queue_id = head.id LIMIT 1),
        head.last_write_at) AS last_write_at,
    size.records AS read, size.bytes AS size, CASE WHEN %(autocommit)s::bool
        AND pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()
        THEN set_config('synchronous_commit', 'local', true) || pg_logical_emit_message(true, 'leasequeue',
            '')::text END AS flushed
FROM head, size
