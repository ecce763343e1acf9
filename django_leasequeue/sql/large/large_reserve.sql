-- Purpose: note objects before they are uploaded, in a transaction of its own: one that no job gets is removed later.
-- Parameters: storage (alias); arrays of equal length: names, sizes; now.
-- Index: inserts only.
-- Pages: none: it only adds.
{keeps_host_settings(inserts only)}
INSERT INTO leasequeue_largeobject (created_at, size, storage, name)
SELECT {now()}, i.size, %(storage)s::text, i.name
FROM ROWS FROM (unnest(%(names)s::text[]), unnest(%(sizes)s::bigint[])) WITH ORDINALITY AS i(name, size, n) ORDER BY i.n
RETURNING id
