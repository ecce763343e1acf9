-- Purpose: which numbers are sealed by now, without reading a topic (see topic_read).
-- Parameters: sealed, heads, marks, known, as topic_read.
-- Index: none.
-- Returns: last number drawn, its mark (null: known before), oldest running transaction, sealed number.
WITH h AS MATERIALIZED (
    SELECT COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) AS last
), m AS MATERIALIZED (
    SELECT h.last, CASE WHEN h.last > %(known)s::bigint AND pg_current_xact_id_if_assigned() IS NULL
            THEN pg_current_xact_id()::text::bigint END AS mark,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest
    FROM h
)
SELECT m.last, m.mark, m.oldest, GREATEST(%(sealed)s::bigint, CASE WHEN m.oldest >= m.mark THEN m.last END, (
    SELECT max(p.head) FROM unnest(%(heads)s::bigint[], %(marks)s::bigint[]) AS p(head, mark)
    WHERE p.mark <= m.oldest))
FROM m
