-- Purpose: note that jobs of a queue have to be brought under their limits or looked at, and wake a claimer. It only
--   adds a row: a producer's open transaction keeps no other session waiting.
-- Parameters: project, queue, kind, seqs, detail (JSON text, or null).
-- Index: leasequeue_queue_name; inserts.
-- Pages: 30
{keeps_host_settings(inserts, and looks at the queue: no plan reads more)}
WITH queue AS MATERIALIZED (
    SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(queue)s
), made AS (
    INSERT INTO leasequeue_flowturn (queue_id, at, kind, seqs, detail)
    SELECT id, 'epoch', %(kind)s::smallint, %(seqs)s::bigint[], %(detail)s::text::jsonb FROM queue
)
SELECT {wake(queue.id)} FROM queue
