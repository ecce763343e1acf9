-- sealing(): which numbers of records are sealed, in CTEs of which the last one has this name.
-- It takes the parameters server, sealed, heads, marks, ends and known.
drawn AS MATERIALIZED (
    SELECT COALESCE(pg_sequence_last_value('leasequeue_job_seq_seq'::regclass), 0) AS last,
        concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),
            extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()),
            'leasequeue_job_seq_seq'::regclass::oid) AS server,
        {timeline()} AS timeline
), known AS MATERIALIZED (
    SELECT *, server = COALESCE(%(server)s::text, server) AND last >= %(known)s::bigint AS same,
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest
    FROM drawn
), marked AS MATERIALIZED (
    SELECT *, CASE WHEN NOT (same AND last = %(known)s::bigint) AND pg_current_xact_id_if_assigned() IS NULL
            THEN pg_current_xact_id()::text::bigint END AS mark,
        (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS inserted
    FROM known
), durable AS MATERIALIZED (
    SELECT marked.*, NULLIF(marked.inserted, LEAST(marked.inserted, f.flushed)) AS place, f.flushed
    FROM marked CROSS JOIN LATERAL (
        SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint + 0 * marked.inserted AS flushed OFFSET 0) f
), sealing AS MATERIALIZED (
    SELECT durable.*,
        GREATEST(0, CASE WHEN durable.same THEN %(sealed)s::bigint END, CASE WHEN durable.place IS NULL
            AND durable.mark <= durable.oldest THEN durable.last END, (
            SELECT max(p.head) FROM unnest(%(heads)s::bigint[], %(marks)s::bigint[], %(ends)s::bigint[]) AS p(head,
                mark, ended)
            WHERE durable.same AND (p.ended <= durable.flushed OR (durable.place IS NULL
                AND p.mark <= durable.oldest)))) AS firm,
        GREATEST(0, CASE WHEN durable.same THEN %(sealed)s::bigint END, CASE
            WHEN durable.mark <= durable.oldest THEN durable.last END, (
            SELECT max(p.head) FROM unnest(%(heads)s::bigint[], %(marks)s::bigint[]) AS p(head, mark)
            WHERE durable.same AND p.mark <= durable.oldest)) AS sealed
    FROM durable
)
