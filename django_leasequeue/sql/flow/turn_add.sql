-- Purpose: note that jobs of a queue have to be brought under their limits, or linked to a workflow, which does not end
--   before, and wake a claimer. It only adds a row: a producer's open transaction keeps no other session waiting.
-- Parameters: project, queue, kind, key (of a workflow its id, else null), seqs, detail (JSON text).
-- Index: leasequeue_queue_name; inserts.
-- Pages: 30
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH queue AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), made AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, key, seqs, detail)
    SELECT id, 'epoch', %(kind)s::smallint, %(key)s::bigint, %(seqs)s::bigint[], %(detail)s::text::jsonb FROM queue
)
SELECT {wake(queue.id)} FROM queue
