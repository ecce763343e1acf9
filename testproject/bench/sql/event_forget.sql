-- Purpose: make the log's BRIN indexes forget page ranges that are past the end of their partition, where the benchmark's
--   events were: what is written there next would otherwise widen an old summary with every row, which costs more
--   than the row.
-- Parameters: partitions, pages (how long they were; arrays).
-- Returns: one row a range.
SELECT brin_desummarize_range(x.indexrelid, block)
FROM unnest(%(partitions)s::bigint[], %(pages)s::bigint[]) AS p(partition, pages)
JOIN pg_class r ON r.oid = p.partition
JOIN pg_index x ON x.indrelid = r.oid
JOIN pg_class c ON c.oid = x.indexrelid
JOIN pg_am a ON a.oid = c.relam AND a.amname = 'brin'
CROSS JOIN LATERAL (
    SELECT COALESCE((SELECT option_value::int FROM pg_options_to_table(c.reloptions)
        WHERE option_name = 'pages_per_range'), 128) AS size) s
CROSS JOIN LATERAL generate_series(
    (pg_relation_size(r.oid) / current_setting('block_size')::bigint + s.size - 1) / s.size * s.size,
    p.pages - 1, s.size) AS block
