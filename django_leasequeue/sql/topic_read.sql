-- Purpose: read a topic in order of its numbers, without leasing anything, up to the sealed number: the highest of which every
--   transaction that could still commit one below has ended (DESIGN section 6).
-- Parameters: project, topic (name), after (seq, exclusive), size; nodes (whose records are left out; empty: none), look
--   (numbers that are looked at, at most), bytes (of the payloads of a page; the first record always fits), cap; sealed
--   (known to be), heads and marks (numbers noted before and the transaction that must have been reached for each), known
--   (the highest of all these numbers); now.
-- Index: leasequeue_queue_name, leasequeue_topicstate_pkey, leasequeue_job_record (log) or leasequeue_job_pkey (queue:
--   there is no index of a queue's numbers, so its cursor moves over those of others); for the head as topic_state.
-- Returns: on every row id, type, head, gap_from, gap_to, gap_reason, gap_count, last number drawn, its mark (null: known
--   before), oldest running transaction, sealed number, last number looked at, whether there may be more behind it, whether
--   records past their TTL are still there (remove them first); then whether the record fits, seq, created_at, tag, origin, data, meta, body, or nulls. The last number is read before the mark is drawn, and a mark
--   of a transaction that has written before is none: what it says of others is too old.
WITH h AS MATERIALIZED (
    SELECT COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) AS last
), m AS MATERIALIZED (
    SELECT h.last, CASE WHEN h.last > %(known)s::bigint AND pg_current_xact_id_if_assigned() IS NULL
            THEN pg_current_xact_id()::text::bigint END AS mark,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest
    FROM h
), s AS MATERIALIZED (
    SELECT m.*, GREATEST(%(sealed)s::bigint, CASE WHEN m.oldest >= m.mark THEN m.last END, (
        SELECT max(p.head) FROM unnest(%(heads)s::bigint[], %(marks)s::bigint[]) AS p(head, mark)
        WHERE p.mark <= m.oldest)) AS sealed
    FROM m
), q AS MATERIALIZED (
    SELECT q.id, q.type, x.head_seq, x.gap_from, x.gap_to, x.gap_reason, x.gap_count, EXISTS (
        SELECT FROM leasequeue_job j WHERE j.queue_id = q.id AND j.expires_at IS NOT NULL AND NOT j.state = 2
            AND j.expires_at <= COALESCE(%(now)s::timestamptz, clock_timestamp())) AS due
    FROM leasequeue_queue q LEFT JOIN leasequeue_topicstate x ON x.queue_id = q.id
    WHERE q.project = %(project)s AND q.name = %(topic)s
), head AS MATERIALIZED (
    SELECT GREATEST(COALESCE(q.head_seq, 0),
        (SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = q.id AND j.state = 4 ORDER BY j.seq DESC LIMIT 1),
        (SELECT max(j.seq) FROM leasequeue_queuefloor f CROSS JOIN LATERAL (
            SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = q.id AND j.rank = f.rank AND j.state = 0
            ORDER BY j.position DESC LIMIT 1) j WHERE f.queue_id = q.id AND f.kind = 0),
        (SELECT max(d.seq) FROM (SELECT j.seq FROM leasequeue_job j WHERE j.queue_id = q.id AND j.state = 1
            ORDER BY j.available_at LIMIT %(cap)s::int) d),
        (SELECT max(u.seq) FROM (SELECT c.seqs FROM leasequeue_claim c WHERE c.queue_id = q.id
            ORDER BY c.deadline DESC LIMIT %(cap)s::int) c CROSS JOIN LATERAL unnest(c.seqs) AS u(seq))) AS seq
    FROM q
), look AS MATERIALIZED (
    SELECT x.* FROM q CROSS JOIN s CROSS JOIN LATERAL (
        (SELECT j.seq, true AS ours, j.origin FROM leasequeue_job j
            WHERE q.type = 'log' AND j.queue_id = q.id AND j.state = 4 AND j.seq > %(after)s::bigint AND j.seq <= s.sealed
            ORDER BY j.seq LIMIT %(look)s::int)
        UNION ALL
        (SELECT j.seq, j.queue_id = q.id, j.origin FROM leasequeue_job j
            WHERE q.type = 'queue' AND j.seq > %(after)s::bigint AND j.seq <= s.sealed
            ORDER BY j.seq LIMIT %(look)s::int)
    ) x
), page AS MATERIALIZED (
    SELECT j.*, sum(COALESCE(octet_length(j.data::text), 0) + COALESCE(octet_length(j.meta::text), 0)
        + COALESCE(octet_length(j.body), 0)) OVER (ORDER BY j.seq) AS total, row_number() OVER (ORDER BY j.seq) AS n
    FROM leasequeue_job j WHERE j.seq = ANY (ARRAY(
        SELECT seq FROM look WHERE ours AND (origin IS NULL OR origin <> ALL (%(nodes)s::text[]))
        ORDER BY seq LIMIT %(size)s::int))
)
SELECT q.id, q.type, head.seq, q.gap_from, q.gap_to, q.gap_reason, q.gap_count, s.last, s.mark, s.oldest, s.sealed,
    (SELECT max(seq) FROM look), (SELECT count(*) FROM look) = %(look)s::int OR (SELECT count(*) FROM page) = %(size)s::int,
    q.due,
    p.n = 1 OR p.total <= %(bytes)s::bigint, p.seq, p.created_at, p.tag, p.origin, p.data::text, p.meta::text, p.body
FROM q CROSS JOIN head CROSS JOIN s LEFT JOIN page p ON true
ORDER BY p.seq
