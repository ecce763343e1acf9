-- Purpose: note that nodes were added to a workflow, and wake a claimer, who links them (workflow_link.sql). It only
--   adds a row: a producer's open transaction keeps no other session waiting. Until that turn is taken the workflow
--   does not end.
-- Parameters: workflow (id), project, queue, seqs, edges (their parents together).
-- Index: leasequeue_queue_name; inserts.
-- Pages: 30
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH queue AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), made AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key, seqs, detail)
    SELECT id, 'epoch', {turn.EXTEND}, %(workflow)s::bigint, %(seqs)s::bigint[],
        jsonb_build_object('edges', %(edges)s::int) FROM queue
)
SELECT {wake(queue.id)} FROM queue
