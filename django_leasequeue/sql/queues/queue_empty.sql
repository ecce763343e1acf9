-- Purpose: whether a queue has no job.
-- Parameters: project, name, ended (dead letters and records count as well).
-- Index: leasequeue_queue_name; of each place the one that begins with the queue: one entry each. (Counted, because
--   EXISTS drops the order that keeps a planner from reading a table from its beginning.)
-- Pages: 50
SELECT (SELECT count(*) FROM (SELECT FROM leasequeue_ready r
    WHERE r.queue_id = q.id ORDER BY r.rank, r.lane, r.position LIMIT 1) x)
    + (SELECT count(*) FROM (SELECT FROM leasequeue_delayed d WHERE d.queue_id = q.id ORDER BY d.available_at
        LIMIT 1) x)
    + (SELECT count(*) FROM (SELECT FROM leasequeue_claim c WHERE c.queue_id = q.id ORDER BY c.deadline LIMIT 1) x)
    + (SELECT count(*) FROM (SELECT FROM leasequeue_deadletter l
        WHERE %(ended)s::bool AND l.queue_id = q.id ORDER BY l.dead_at LIMIT 1) x)
    + (SELECT count(*) FROM (SELECT FROM leasequeue_record o WHERE %(ended)s::bool AND o.queue_id = q.id ORDER BY o.seq
        LIMIT 1) x) = 0
FROM leasequeue_queue q WHERE q.project = %(project)s AND q.name = %(name)s
