-- Purpose: staged jobs in the form in which enqueue takes them: arrays, as text. (Data with a space in front would be
--   the engine's reference to a large payload: only the engine writes those.)
-- Parameters: parts, low (exclusive), high, ids (only these; null: all).
-- Index: the primary key: what is asked for part by part would be read anew for every range.
-- Pages: 40 + 6 a row
-- Returns: of each queue its name, ids, the parameters of enqueue.sql as arrays, sources.
SELECT s.queue, array_agg(s.id ORDER BY s.id), array_agg(s.n ORDER BY s.id)::text,
    array_agg(s.key ORDER BY s.id)::text, array_agg(s.name ORDER BY s.id)::text, array_agg(s.tag ORDER BY s.id)::text,
    array_agg(s.priority ORDER BY s.id)::text, array_agg(ltrim(s.data::text) ORDER BY s.id)::text,
    array_agg(s.meta::text ORDER BY s.id)::text, array_agg(s.body ORDER BY s.id)::text,
    array_agg(s.run_at ORDER BY s.id)::text, array_agg(s.ttl_ms ORDER BY s.id)::text,
    array_agg(s.reply_to ORDER BY s.id)::text, array_agg(s.result_ttl_ms ORDER BY s.id)::text,
    array_agg(s.max_deliveries ORDER BY s.id)::text, array_agg(s.source_seq ORDER BY s.id)::text
FROM (
    SELECT *, row_number() OVER (PARTITION BY queue ORDER BY id) AS n FROM leasequeue_lakestage
    WHERE id > %(low)s::bigint AND id <= %(high)s::bigint AND ARRAY[part] <@ %(parts)s::uuid[]
        AND (%(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s::bigint[]))
) s
GROUP BY s.queue ORDER BY s.queue
