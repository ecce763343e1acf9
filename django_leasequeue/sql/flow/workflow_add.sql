-- Purpose: a new workflow; the same transaction adds its members (member_add.sql).
-- Parameters: uid, project, name, total, edges (parents of all nodes together), on_failure (seq, or null), now.
-- Index: inserts only.
-- Pages: 30
-- Host: inserts: no plan reads anything.
-- Returns: the workflow's id.
INSERT INTO leasequeue_workflow (uid, project, name, state, total, edges, completed, failed, cancelled, on_failure, created_at)
VALUES (%(uid)s::uuid, %(project)s::text, %(name)s::text, 0, %(total)s::int, %(edges)s::int, 0, 0, 0, %(on_failure)s::bigint,
    COALESCE(%(now)s::timestamptz, clock_timestamp()))
RETURNING id
