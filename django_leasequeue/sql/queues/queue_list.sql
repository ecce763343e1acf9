-- Purpose: queues by name, a page at a time.
-- Parameters: project, after (name, exclusive; '' = from the start), prefix ('' = any), prefixes (one of them; empty:
--   any), type (null: any), size.
-- Index: leasequeue_queue_name.
-- Pages: 20 + 0.4 a row
SELECT id, name, type, metadata::text AS metadata_json, paused_at FROM leasequeue_queue
WHERE project = %(project)s AND name > %(after)s AND starts_with(name, %(prefix)s::text)
    AND (%(type)s::text IS NULL OR type = %(type)s::text)
    AND (%(prefixes)s::text[] = '{}' OR EXISTS (
        SELECT FROM unnest(%(prefixes)s::text[]) AS p(prefix) WHERE starts_with(name, p.prefix)))
ORDER BY name LIMIT %(size)s::int
