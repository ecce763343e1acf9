-- Purpose: which numbers are sealed by now, without reading a topic (see topic_read).
-- Parameters: server, sealed, heads, marks, ends, known, as topic_read; autocommit.
-- Pages: 20
-- Returns: server, timeline, last number drawn, its mark (null: known before), oldest running transaction, place in the WAL (null: all of
--   it is on disk), sealed number that may be told, sealed number that may be told once the WAL is on disk.
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
)
SELECT w.server, w.timeline, w.last, w.mark, w.oldest, w.place,
    GREATEST(0, CASE WHEN w.same THEN %(sealed)s::bigint END, CASE WHEN w.place IS NULL AND w.mark <= w.oldest THEN w.last END, (
        SELECT max(p.head) FROM unnest(%(heads)s::bigint[], %(marks)s::bigint[], %(ends)s::bigint[]) AS p(head, mark, ended)
        WHERE w.same AND (p.ended <= w.flushed OR (w.place IS NULL AND p.mark <= w.oldest)))),
    GREATEST(0, CASE WHEN w.same THEN %(sealed)s::bigint END, CASE WHEN w.mark <= w.oldest THEN w.last END, (
        SELECT max(p.head) FROM unnest(%(heads)s::bigint[], %(marks)s::bigint[]) AS p(head, mark)
        WHERE w.same AND p.mark <= w.oldest)),
    %(autocommit)s::bool
FROM w
