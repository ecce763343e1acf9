-- Purpose: where a topic stands: its head, its earliest record, its size, its last write.
-- Parameters: project, topic (name), cap (entries of one kind that are read at most), now.
-- Index: leasequeue_queue_name, leasequeue_topicstate_pkey, leasequeue_job_ready from the floor on, leasequeue_job_delayed,
--   leasequeue_job_dead, leasequeue_job_record, leasequeue_claim_deadline, leasequeue_job_pkey; leasequeue_event_seq when the
--   newest job is done.
-- Returns: id, whether records past their TTL are still there (remove them first), head, earliest (null: empty), time of the
--   last write, records that were read, their bytes. The head of a queue whose newest jobs are done stands on their claims until the
--   sweep takes those away and remembers it.
WITH q AS MATERIALIZED (
    SELECT q.id, s.head_seq, s.last_write_at, EXISTS (
        SELECT FROM leasequeue_job j WHERE j.queue_id = q.id AND j.expires_at IS NOT NULL AND NOT j.state = 2
            AND j.expires_at <= COALESCE(%(now)s::timestamptz, clock_timestamp())) AS due
    FROM leasequeue_queue q LEFT JOIN leasequeue_topicstate s ON s.queue_id = q.id
    WHERE q.project = %(project)s AND q.name = %(topic)s
), c AS MATERIALIZED (
    SELECT u.seq FROM q CROSS JOIN LATERAL (SELECT c.seqs FROM leasequeue_claim c WHERE c.queue_id = q.id
        ORDER BY c.deadline DESC LIMIT 2 * %(cap)s::int) c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
    LIMIT 2 * %(cap)s::int + 1
), live AS MATERIALIZED (
    SELECT x.seq, COALESCE(octet_length(x.data::text), 0) + COALESCE(octet_length(x.meta::text), 0)
        + COALESCE(octet_length(x.body), 0) AS bytes
    FROM q CROSS JOIN LATERAL (
        (SELECT j.seq, j.data, j.meta, j.body FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
            SELECT * FROM leasequeue_job j WHERE j.queue_id = q.id AND j.rank = f.rank AND j.state = 0
                AND j.position >= f.value ORDER BY j.position LIMIT %(cap)s::int) j
        WHERE f.queue_id = q.id AND f.kind = 0)
        UNION ALL
        (SELECT j.seq, j.data, j.meta, j.body FROM leasequeue_job j WHERE j.queue_id = q.id AND j.state = 1
            ORDER BY j.available_at LIMIT %(cap)s::int)
        UNION ALL
        (SELECT j.seq, j.data, j.meta, j.body FROM leasequeue_job j
            WHERE j.queue_id = q.id AND j.dead_at IS NOT NULL AND j.state = 3 LIMIT %(cap)s::int)
        UNION ALL
        (SELECT j.seq, j.data, j.meta, j.body FROM leasequeue_job j WHERE j.queue_id = q.id AND j.state = 4
            ORDER BY j.seq LIMIT %(cap)s::int)
        UNION ALL
        (SELECT j.seq, j.data, j.meta, j.body FROM leasequeue_job j
            WHERE j.seq = ANY (ARRAY(SELECT seq FROM c)) AND j.queue_id = q.id AND j.state = 2)
    ) x
), head AS MATERIALIZED (
    SELECT GREATEST(COALESCE(q.head_seq, 0), (SELECT max(seq) FROM live), (SELECT max(seq) FROM c),
        (SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = q.id AND j.state = 4 ORDER BY j.seq DESC LIMIT 1),
        (SELECT max(j.seq) FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
            SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = q.id AND j.rank = f.rank AND j.state = 0
            ORDER BY j.position DESC LIMIT 1) j WHERE f.queue_id = q.id AND f.kind = 0)) AS seq, q.id, q.due, q.last_write_at
    FROM q
)
SELECT head.id, head.due, head.seq, (SELECT min(seq) FROM live), COALESCE(
        (SELECT j.created_at FROM leasequeue_job j WHERE j.seq = head.seq), head.last_write_at,
        (SELECT e.enqueued_at FROM leasequeue_leaseevent e WHERE e.seq = head.seq AND e.enqueued_at IS NOT NULL LIMIT 1)),
    (SELECT count(*) FROM live), (SELECT COALESCE(sum(bytes), 0)::bigint FROM live)
FROM head
