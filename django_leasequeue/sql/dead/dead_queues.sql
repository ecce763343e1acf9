-- Purpose: the queues and topics that have dead letters, by project and name.
-- Parameters: project, queue (null: any), prefixes (only names that begin so; empty: any), size.
-- Index: leasequeue_dead_died, one probe a queue.
-- Pages: 20 + 4 a row
SELECT q.id, q.project, q.name, q.type FROM leasequeue_queue q
CROSS JOIN LATERAL (
    SELECT d.seq FROM leasequeue_deadletter d WHERE d.queue_id = q.id ORDER BY d.dead_at LIMIT 1) d
WHERE (%(project)s::text IS NULL OR q.project = %(project)s::text)
    AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
    AND (%(prefixes)s::text[] = '{}' OR EXISTS (
        SELECT FROM unnest(%(prefixes)s::text[]) AS p WHERE starts_with(q.name, p)))
ORDER BY q.project, q.name LIMIT %(size)s::int
