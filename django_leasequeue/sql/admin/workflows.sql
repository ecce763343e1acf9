-- Purpose: workflows of every project, the newest first, that a filter wants; a number of them at a time is looked at.
-- Parameters: below (id, exclusive), size (workflows that are looked at), enough (that are returned), state, text (a part of the name, in
--   any case), each null: any.
-- Index: leasequeue_workflow_pkey, read backwards.
-- Pages: 20 + 1 a row
-- Returns: on every row: how many were looked at, the lowest id of them; then, or nulls: uid, project, id, name, state, total,
--   completed, failed, cancelled, made, ended at, shape.
WITH w AS MATERIALIZED (
    SELECT * FROM leasequeue_workflow w WHERE w.id < %(below)s::bigint ORDER BY w.id DESC LIMIT %(size)s::int
), m AS (
    SELECT * FROM w WHERE (%(state)s::int IS NULL OR w.state = %(state)s::int)
        AND (%(text)s::text IS NULL OR strpos(lower(w.name), lower(%(text)s::text)) > 0)
    ORDER BY w.id DESC LIMIT %(enough)s::int
)
SELECT l.n, l.low, m.uid, m.project, m.id, m.name, m.state::int, m.total, m.completed, m.failed, m.cancelled, m.created_at, m.ended_at, m.shape::int
FROM (SELECT count(*) AS n, min(id) AS low FROM w) l LEFT JOIN m ON true
ORDER BY m.id DESC
