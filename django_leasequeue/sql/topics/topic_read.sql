-- Purpose: read a topic in order of its numbers, without leasing anything, up to the sealed number: the highest of which every
--   transaction that could still commit one below has ended. What is told is on disk: where it is not, and the statement is a
--   transaction of its own, its commit waits for the disk; else only what was sealed and on disk before is read.
-- Parameters: project, topic (name), after (seq, exclusive), size; nodes (whose records are left out; empty: none), take (entries
--   of one place that are looked at, more than size), look (entries of all queues that are looked at where one has many delayed
--   or dead jobs), bytes (of the payloads of a page; the first record always fits); server (what
--   the following is about, null: whatever it is), sealed (known to be, and on disk), heads, marks and ends (numbers noted before, the
--   transaction that must have been reached for each, the place in the WAL that must be on disk, null: not reached yet), known
--   (the highest of all these numbers); now, autocommit.
-- Index: leasequeue_queue_name, leasequeue_topicstate_pkey, leasequeue_record_pkey; of a queue leasequeue_ready_pkey (the fresh
--   lane from the floor on), leasequeue_ready_moved, leasequeue_delayed_due or leasequeue_delayed_pkey, leasequeue_dead_died or
--   leasequeue_deadletter_pkey, leasequeue_claim_deadline (all live claims), leasequeue_jobresult_pkey (the newest ones, where results
--   are kept); leasequeue_job_pkey for the page.
-- Pages: 20 + 0.8 a row
-- Returns: on every row server, timeline, last number drawn, its mark (null: known before), oldest running transaction, place in the WAL
--   (null: all of it is on disk), sealed number that may be told, and once the WAL is on disk; whether this commit sees to that;
--   id, type, head, gap_from, gap_to, gap_reason, gap_count, number up to which the topic was read (of a log: its last record
--   that was looked at), whether there may be more behind it, whether records past their TTL are still there (remove them
--   first); then whether the record fits, seq, created_at, tag, origin, data, meta, body, or nulls. The last number is read
--   before the mark is drawn, and the place after the snapshot; a mark of a transaction that has written before is none: what
--   it says of others is too old.
WITH h AS MATERIALIZED (
    SELECT COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) AS last,
        concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))
        AS server,
        ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint AS timeline
), m AS MATERIALIZED (
    SELECT h.*, h.server = COALESCE(%(server)s::text, h.server) AND h.last >= %(known)s::bigint AS same,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest
    FROM h
), n AS MATERIALIZED (
    SELECT m.*, CASE WHEN NOT (m.same AND m.last = %(known)s::bigint) AND pg_current_xact_id_if_assigned() IS NULL
            THEN pg_current_xact_id()::text::bigint END AS mark,
        (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS inserted
    FROM m
), w AS MATERIALIZED (
    SELECT n.*, NULLIF(n.inserted, LEAST(n.inserted, f.flushed)) AS place, f.flushed
    FROM n CROSS JOIN LATERAL (SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint + 0 * n.inserted AS flushed OFFSET 0) f
), p AS MATERIALIZED (
    SELECT w.*,
        GREATEST(0, CASE WHEN w.same THEN %(sealed)s::bigint END, CASE WHEN w.place IS NULL AND w.mark <= w.oldest THEN w.last END, (
            SELECT max(p.head) FROM unnest(%(heads)s::bigint[], %(marks)s::bigint[], %(ends)s::bigint[]) AS p(head, mark, ended)
            WHERE w.same AND (p.ended <= w.flushed OR (w.place IS NULL AND p.mark <= w.oldest)))) AS firm,
        GREATEST(0, CASE WHEN w.same THEN %(sealed)s::bigint END, CASE WHEN w.mark <= w.oldest THEN w.last END, (
            SELECT max(p.head) FROM unnest(%(heads)s::bigint[], %(marks)s::bigint[]) AS p(head, mark)
            WHERE w.same AND p.mark <= w.oldest)) AS sealed
    FROM w
), q AS MATERIALIZED (
    SELECT q.id, q.type, q.type = 'queue' AND q.result_ttl_ms > 0 AS keeps, x.head_seq, x.gap_from, x.gap_to, x.gap_reason, x.gap_count, p.firm,
        CASE WHEN %(autocommit)s::bool OR p.place IS NULL THEN p.sealed ELSE p.firm END AS sealed,
        {now()} AS now, 'epoch'::timestamptz + interval '1 us' * {floor(q.id, 2, 0)} AS since
    FROM p, leasequeue_queue q LEFT JOIN leasequeue_topicstate x ON x.queue_id = q.id
    WHERE q.project = %(project)s AND q.name = %(topic)s
), over AS MATERIALIZED (
    SELECT COALESCE((SELECT 1 FROM leasequeue_record o WHERE o.queue_id = q.id AND o.expires_at IS NOT NULL
            AND o.expires_at <= q.now ORDER BY o.expires_at LIMIT 1),
        (SELECT 1 FROM leasequeue_ready r WHERE r.queue_id = q.id AND r.expires_at IS NOT NULL
            AND r.expires_at <= q.now ORDER BY r.expires_at LIMIT 1),
        (SELECT 1 FROM leasequeue_delayed d WHERE d.queue_id = q.id AND d.expires_at IS NOT NULL
            AND d.expires_at <= q.now ORDER BY d.expires_at LIMIT 1),
        (SELECT 1 FROM leasequeue_deadletter x WHERE x.queue_id = q.id AND x.expires_at IS NOT NULL
            AND x.expires_at <= q.now AND x.in_place ORDER BY x.expires_at LIMIT 1)) IS NOT NULL AS due
    FROM q
), k AS MATERIALIZED (
    SELECT q.id, q.sealed, k.rank, l.lane, CASE WHEN l.lane = 2 THEN {floor(q.id, 0, k.rank)} ELSE 0 END AS low
    FROM q CROSS JOIN LATERAL (SELECT DISTINCT k.rank FROM leasequeue_queuerank k WHERE q.type = 'queue' AND k.queue_id = q.id) k
    CROSS JOIN (VALUES (1), (2)) AS l(lane)
), c AS MATERIALIZED (
    SELECT u.seq FROM q CROSS JOIN LATERAL (SELECT c.seqs FROM leasequeue_claim c WHERE q.type = 'queue' AND c.queue_id = q.id
        AND c.deadline >= q.since ORDER BY c.deadline OFFSET 0) c
    CROSS JOIN LATERAL unnest(c.seqs) AS u(seq)
), d AS MATERIALIZED (
    SELECT d.seq FROM q CROSS JOIN LATERAL (SELECT d.seq FROM leasequeue_delayed d WHERE q.type = 'queue' AND d.queue_id = q.id
        ORDER BY d.available_at LIMIT 1000) d
), x AS MATERIALIZED (
    SELECT x.seq, x.in_place FROM q CROSS JOIN LATERAL (SELECT x.seq, x.in_place FROM leasequeue_deadletter x
        WHERE q.type = 'queue' AND x.queue_id = q.id ORDER BY x.dead_at, x.seq + 0 LIMIT 1000) x
), head AS MATERIALIZED (
    SELECT GREATEST(COALESCE(q.head_seq, 0),
        {floor(q.id, 3, 0)},
        (SELECT o.seq FROM leasequeue_record o WHERE o.queue_id = q.id ORDER BY o.seq DESC LIMIT 1),
        (SELECT max(r.seq) FROM k CROSS JOIN LATERAL (
            SELECT COALESCE(max(r.seq) FILTER (WHERE r.position = r.seq), CASE WHEN count(*) = 100 THEN max(r.position) END) AS seq
            FROM (SELECT r.seq, r.position FROM leasequeue_ready r WHERE r.queue_id = k.id AND r.rank = k.rank AND r.lane = k.lane
                ORDER BY r.position DESC LIMIT 100) r) r),
        (SELECT r.seq FROM leasequeue_ready r WHERE r.queue_id = q.id AND NOT r.position = r.seq ORDER BY r.seq DESC LIMIT 1),
        (SELECT max(seq) FROM c), (SELECT max(seq) FROM d), (SELECT max(seq) FROM x WHERE in_place),
        (SELECT max(z.seq) FROM (SELECT z.seq, z.queue_id FROM leasequeue_delayed z WHERE (SELECT count(*) FROM d) = 1000
            ORDER BY z.seq DESC LIMIT %(look)s::int) z WHERE z.queue_id = q.id),
        (SELECT max(z.seq) FROM (SELECT z.* FROM leasequeue_deadletter z WHERE (SELECT count(*) FROM x) = 1000
            ORDER BY z.seq DESC LIMIT %(look)s::int) z WHERE z.queue_id = q.id AND z.in_place),
        (SELECT max(z.seq) FROM (SELECT z.seq, z.queue_id FROM leasequeue_jobresult z WHERE q.keeps
            ORDER BY z.seq DESC LIMIT 1000) z WHERE z.queue_id = q.id)) AS seq
    FROM q
), look AS MATERIALIZED (
    SELECT q.id AS place, 0 AS lane, o.seq, o.seq AS upto, true AS ours, %(take)s::int AS most FROM q CROSS JOIN LATERAL (
        SELECT o.seq FROM leasequeue_record o
        WHERE q.type = 'log' AND o.queue_id = q.id AND o.seq > %(after)s::bigint AND o.seq <= q.sealed
        ORDER BY o.seq LIMIT %(take)s::int) o
    UNION ALL
    SELECT k.rank, k.lane, r.seq, r.position, r.position = r.seq, %(take)s::int FROM k CROSS JOIN LATERAL (
        SELECT r.seq, r.position FROM leasequeue_ready r
        WHERE r.queue_id = k.id AND r.rank = k.rank AND r.lane = k.lane AND r.position >= k.low
            AND r.position > %(after)s::bigint AND r.position <= k.sealed
        ORDER BY r.position LIMIT %(take)s::int) r
    UNION ALL
    SELECT 0, 3, r.seq, r.seq, true, %(take)s::int FROM q CROSS JOIN LATERAL (
        SELECT r.seq FROM leasequeue_ready r WHERE q.type = 'queue' AND r.queue_id = q.id AND NOT r.position = r.seq
            AND r.seq > %(after)s::bigint AND r.seq <= q.sealed
        ORDER BY r.seq LIMIT %(take)s::int) r
    UNION ALL
    (SELECT 0, 4, c.seq, c.seq, true, %(take)s::int FROM c, q WHERE c.seq > %(after)s::bigint AND c.seq <= q.sealed
        ORDER BY c.seq LIMIT %(take)s::int)
    UNION ALL
    SELECT 0, 5, d.seq, d.seq, true, 1000 FROM d, q
    WHERE (SELECT count(*) FROM d) < 1000 AND d.seq > %(after)s::bigint AND d.seq <= q.sealed
    UNION ALL
    SELECT 0, 6, z.seq, z.seq, z.queue_id = q.id, %(look)s::int FROM q CROSS JOIN LATERAL (
        SELECT z.seq, z.queue_id FROM leasequeue_delayed z
        WHERE (SELECT count(*) FROM d) = 1000 AND z.seq > %(after)s::bigint AND z.seq <= q.sealed
        ORDER BY z.seq LIMIT %(look)s::int) z
    UNION ALL
    SELECT 0, 7, x.seq, x.seq, true, 1000 FROM x, q
    WHERE (SELECT count(*) FROM x) < 1000 AND x.in_place AND x.seq > %(after)s::bigint AND x.seq <= q.sealed
    UNION ALL
    SELECT 0, 8, z.seq, z.seq, z.queue_id = q.id AND z.in_place, %(look)s::int FROM q CROSS JOIN LATERAL (
        SELECT z.seq, z.queue_id, z.in_place FROM leasequeue_deadletter z
        WHERE (SELECT count(*) FROM x) = 1000 AND z.seq > %(after)s::bigint AND z.seq <= q.sealed
        ORDER BY z.seq LIMIT %(look)s::int) z
), bound AS MATERIALIZED (
    SELECT COALESCE(min(b.upto), 9223372036854775807) AS upto
    FROM (SELECT max(upto) AS upto FROM look GROUP BY place, lane, most HAVING count(*) >= most) b
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
), e AS MATERIALIZED (
    SELECT LEAST(q.sealed, (SELECT upto FROM bound), (SELECT max(seq) FROM found HAVING count(*) = %(take)s::int)) AS upto,
        CASE WHEN %(autocommit)s::bool AND p.place IS NOT NULL AND GREATEST(head.seq, q.gap_to) > p.firm
            THEN set_config('synchronous_commit', 'local', true) || pg_logical_emit_message(true, 'leasequeue', '')::text
        END IS NOT NULL AS written
    FROM p, q, head
)
SELECT p.server, p.timeline, p.last, p.mark, p.oldest, p.place, p.firm, p.sealed, e.written, q.id, q.type, head.seq, q.gap_from,
    q.gap_to, q.gap_reason, q.gap_count,
    CASE WHEN q.type = 'log' THEN (SELECT max(seq) FROM found) WHEN e.written OR p.place IS NULL THEN e.upto
        ELSE LEAST(e.upto, p.firm) END,
    e.upto < q.sealed OR (SELECT count(*) FROM page) = %(size)s::int,
    over.due,
    g.n = 1 OR g.total <= %(bytes)s::bigint, g.seq, g.created_at, g.tag, g.origin, g.data::text, g.meta::text, g.body
FROM p CROSS JOIN q CROSS JOIN over CROSS JOIN head CROSS JOIN e LEFT JOIN page g ON true
ORDER BY g.seq
