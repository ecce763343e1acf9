-- Purpose: read a topic in order of its numbers, without leasing anything, up to the sealed number: the highest of
--   which every transaction that could still commit one below has ended. What is told is on disk: where it is not, and
--   the statement is a transaction of its own, its commit waits for the disk; else only what was sealed and on disk
--   before is read.
-- Parameters: project, topic (name), after (seq, exclusive), size; nodes (whose records are left out; empty: none),
--   take (entries of one place that are looked at, more than size), look (entries of all queues that are looked at
--   where one has many delayed or dead jobs), bytes (of the payloads of a page; the first record always fits); server
--   (what the following is about, null: whatever it is), sealed (known to be, and on disk), heads, marks and ends
--   (numbers noted before, the transaction that must have been reached for each, the place in the WAL that must be on
--   disk, null: not reached yet), known (the highest of all these numbers); now, autocommit.
-- Index: leasequeue_queue_name, leasequeue_topicstate_pkey, leasequeue_record_pkey; of a queue leasequeue_ready_pkey
--   (the fresh lane from the floor on), leasequeue_ready_moved, leasequeue_delayed_due or leasequeue_delayed_pkey,
--   leasequeue_dead_died or leasequeue_deadletter_pkey, leasequeue_claim_deadline (all live claims),
--   leasequeue_jobresult_pkey (the newest ones, where results are kept); leasequeue_job_pkey for the page.
-- Pages: 20 + 0.8 a row
-- Returns: on every row a SealedView, the _Topic, and whether the record fits; then a TopicRecord, or nulls. The last
--   number is read before the mark is drawn, and the place after the snapshot; a mark of a transaction that has written
--   before is none: what it says of others is too old.
WITH {sealing()}, topic AS MATERIALIZED (
    SELECT q.id, q.type, q.type = 'queue' AND q.result_ttl_ms > 0 AS keeps, x.head_seq, x.gap_from, x.gap_to,
        x.gap_reason, x.gap_count, sealing.firm,
        CASE WHEN %(autocommit)s::bool OR sealing.place IS NULL THEN sealing.sealed ELSE sealing.firm END AS sealed,
        {now()} AS now, {since(q.id, {floor.CLAIM})} AS since
    FROM sealing, leasequeue_queue q LEFT JOIN leasequeue_topicstate x ON x.queue_id = q.id
    WHERE q.project = %(project)s AND q.name = %(topic)s
), over AS MATERIALIZED (
    SELECT {past_ttl(topic)} AS due
    FROM topic
), lanes AS MATERIALIZED (
    SELECT topic.id, topic.sealed, k.rank, l.lane, CASE
        WHEN l.lane = {FRESH} THEN {floor(topic.id, {floor.READY}, k.rank)} ELSE 0 END AS low
    FROM topic CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k
        WHERE topic.type = 'queue' AND k.queue_id = topic.id) k
    CROSS JOIN (VALUES ({AGAIN}), ({FRESH})) AS l(lane)
), leased AS MATERIALIZED (
    SELECT u.seq FROM topic CROSS JOIN LATERAL (SELECT c.seqs FROM leasequeue_claim c
        WHERE topic.type = 'queue' AND c.queue_id = topic.id
        AND c.deadline >= topic.since ORDER BY c.deadline OFFSET 0) c
    CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
), delayed AS MATERIALIZED (
    SELECT d.seq FROM topic CROSS JOIN LATERAL (SELECT d.seq FROM leasequeue_delayed d
        WHERE topic.type = 'queue' AND d.queue_id = topic.id
        ORDER BY d.available_at LIMIT 1000) d
), dead AS MATERIALIZED (
    SELECT x.seq, x.in_place FROM topic CROSS JOIN LATERAL (SELECT x.seq, x.in_place FROM leasequeue_deadletter x
        WHERE topic.type = 'queue' AND x.queue_id = topic.id ORDER BY x.dead_at, x.seq + 0 LIMIT 1000) x
), head AS MATERIALIZED (
    SELECT GREATEST(COALESCE(topic.head_seq, 0),
        {heads()},
        (SELECT max(seq) FROM leased), (SELECT max(seq) FROM delayed), (SELECT max(seq) FROM dead WHERE in_place),
        (SELECT max(z.seq) FROM (SELECT z.seq, z.queue_id FROM leasequeue_delayed z
            WHERE (SELECT count(*) FROM delayed) = 1000
            ORDER BY z.seq DESC LIMIT %(look)s::int) z WHERE z.queue_id = topic.id),
        (SELECT max(z.seq) FROM (SELECT z.* FROM leasequeue_deadletter z WHERE (SELECT count(*) FROM dead) = 1000
            ORDER BY z.seq DESC LIMIT %(look)s::int) z WHERE z.queue_id = topic.id AND z.in_place),
        (SELECT max(z.seq) FROM (SELECT z.seq, z.queue_id FROM leasequeue_jobresult z WHERE topic.keeps
            ORDER BY z.seq DESC LIMIT 1000) z WHERE z.queue_id = topic.id)) AS seq
    FROM topic
), look AS MATERIALIZED (
    SELECT topic.id AS place, 0 AS source, o.seq, o.seq AS upto, true AS ours, %(take)s::int AS most FROM topic
    CROSS JOIN LATERAL (
        SELECT o.seq FROM leasequeue_record o
        WHERE topic.type = 'log' AND o.queue_id = topic.id AND o.seq > %(after)s::bigint AND o.seq <= topic.sealed
        ORDER BY o.seq LIMIT %(take)s::int) o
    UNION ALL
    SELECT lanes.rank, lanes.lane, r.seq, r.position, r.position = r.seq, %(take)s::int FROM lanes CROSS JOIN LATERAL (
        SELECT r.seq, r.position FROM leasequeue_ready r
        WHERE r.queue_id = lanes.id AND r.rank = lanes.rank AND r.lane = lanes.lane AND r.position >= lanes.low
            AND r.position > %(after)s::bigint AND r.position <= lanes.sealed
        ORDER BY r.position LIMIT %(take)s::int) r
    UNION ALL
    SELECT 0, 3, r.seq, r.seq, true, %(take)s::int FROM topic CROSS JOIN LATERAL (
        SELECT r.seq FROM leasequeue_ready r WHERE topic.type = 'queue' AND r.queue_id = topic.id
            AND NOT r.position = r.seq
            AND r.seq > %(after)s::bigint AND r.seq <= topic.sealed
        ORDER BY r.seq LIMIT %(take)s::int) r
    UNION ALL
    (SELECT 0, 4, leased.seq, leased.seq, true, %(take)s::int FROM leased, topic
        WHERE leased.seq > %(after)s::bigint AND leased.seq <= topic.sealed
        ORDER BY leased.seq LIMIT %(take)s::int)
    UNION ALL
    SELECT 0, 5, delayed.seq, delayed.seq, true, 1000 FROM delayed, topic
    WHERE (SELECT count(*) FROM delayed) < 1000 AND delayed.seq > %(after)s::bigint AND delayed.seq <= topic.sealed
    UNION ALL
    SELECT 0, 6, z.seq, z.seq, z.queue_id = topic.id, %(look)s::int FROM topic CROSS JOIN LATERAL (
        SELECT z.seq, z.queue_id FROM leasequeue_delayed z
        WHERE (SELECT count(*) FROM delayed) = 1000 AND z.seq > %(after)s::bigint AND z.seq <= topic.sealed
        ORDER BY z.seq LIMIT %(look)s::int) z
    UNION ALL
    SELECT 0, 7, dead.seq, dead.seq, true, 1000 FROM dead, topic
    WHERE (SELECT count(*) FROM dead) < 1000 AND dead.in_place AND dead.seq > %(after)s::bigint
        AND dead.seq <= topic.sealed
    UNION ALL
    SELECT 0, 8, z.seq, z.seq, z.queue_id = topic.id AND z.in_place, %(look)s::int FROM topic CROSS JOIN LATERAL (
        SELECT z.seq, z.queue_id, z.in_place FROM leasequeue_deadletter z
        WHERE (SELECT count(*) FROM dead) = 1000 AND z.seq > %(after)s::bigint AND z.seq <= topic.sealed
        ORDER BY z.seq LIMIT %(look)s::int) z
), bound AS MATERIALIZED (
    SELECT COALESCE(min(b.upto), 9223372036854775807) AS upto
    FROM (SELECT max(upto) AS upto FROM look GROUP BY place, source, most HAVING count(*) >= most) b
), found AS MATERIALIZED (
    SELECT seq FROM look WHERE ours AND seq <= (SELECT upto FROM bound) ORDER BY seq LIMIT %(take)s::int
), page AS MATERIALIZED (
    SELECT j.*, sum({bytes(j)}) OVER (ORDER BY j.seq) AS total, row_number() OVER (ORDER BY j.seq) AS n
    FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(
        SELECT found.seq FROM found
        CROSS JOIN LATERAL (SELECT j.origin FROM leasequeue_job j WHERE %(nodes)s::text[] <> '{}' AND j.seq = found.seq
            UNION ALL SELECT NULL WHERE %(nodes)s::text[] = '{}') o
        WHERE o.origin IS NULL OR o.origin <> ALL (%(nodes)s::text[])
        ORDER BY found.seq LIMIT %(size)s::int))
), reach AS MATERIALIZED (
    SELECT LEAST(topic.sealed, (SELECT upto FROM bound), (SELECT max(seq) FROM found
        HAVING count(*) = %(take)s::int)) AS upto,
        CASE WHEN %(autocommit)s::bool AND sealing.place IS NOT NULL AND GREATEST(head.seq, topic.gap_to) > sealing.firm
            THEN set_config('synchronous_commit', 'local', true) || pg_logical_emit_message(true, 'leasequeue',
                '')::text
        END IS NOT NULL AS written
    FROM sealing, topic, head
)
SELECT sealing.server, sealing.timeline, sealing.last, sealing.mark, sealing.oldest, sealing.place, sealing.firm,
    sealing.sealed, reach.written, topic.id, topic.type, head.seq, topic.gap_from, topic.gap_to, topic.gap_reason,
    topic.gap_count,
    CASE WHEN topic.type = 'log' THEN (SELECT max(seq) FROM found) WHEN reach.written
        OR sealing.place IS NULL THEN reach.upto
        ELSE LEAST(reach.upto, sealing.firm) END,
    reach.upto < topic.sealed OR (SELECT count(*) FROM page) = %(size)s::int, over.due,
    g.n = 1 OR g.total <= %(bytes)s::bigint, g.seq, g.created_at, g.tag, g.origin, g.data::text, g.meta::text, g.body,
    g.name
FROM sealing CROSS JOIN topic CROSS JOIN over CROSS JOIN head CROSS JOIN reach LEFT JOIN page g ON true
ORDER BY g.seq
