-- Purpose: topics by name, a page at a time, only those that a key may see.
-- Parameters: project, after (name, exclusive; '' = from the start), prefix ('' = any), prefixes (one of them; empty: any),
--   size.
-- Index: leasequeue_queue_name.
-- Pages: 20 + 0.4 a row
-- Returns: name, type.
SELECT q.name, q.type FROM leasequeue_queue q
WHERE q.project = %(project)s AND q.name > %(after)s AND starts_with(q.name, %(prefix)s::text)
    AND (%(prefixes)s::text[] = '{}' OR EXISTS (
        SELECT FROM unnest(%(prefixes)s::text[]) AS p(prefix) WHERE starts_with(q.name, p.prefix)))
ORDER BY q.name LIMIT %(size)s::int
