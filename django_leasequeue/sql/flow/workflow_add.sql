-- Purpose: a new workflow; the same transaction adds its members (member_add.sql).
-- Parameters: uid, project, name, shape, total (0: it has ended), edges (parents of all nodes together), on_failure
--   (seq, or null), keep_ms (of a workflow that has ended), now.
-- Index: inserts only.
-- Pages: 30
{keeps_host_settings(inserts: no plan reads anything)}
INSERT INTO leasequeue_workflow (uid, project, name, state, shape, total, edges, completed, failed, cancelled,
    on_failure, created_at, ended_at, expires_at)
SELECT %(uid)s::uuid, %(project)s::text, %(name)s::text,
    CASE WHEN %(total)s::int = 0 THEN {workflow.COMPLETED} ELSE {workflow.RUNNING} END, %(shape)s::int, %(total)s::int,
    %(edges)s::int, 0, 0, 0, %(on_failure)s::bigint, t.now, e.at,
    e.at + make_interval(secs => %(keep_ms)s::bigint / 1000.0)
FROM (SELECT {now()} AS now OFFSET 0) t, LATERAL (SELECT CASE WHEN %(total)s::int = 0 THEN t.now END AS at) e
RETURNING id
