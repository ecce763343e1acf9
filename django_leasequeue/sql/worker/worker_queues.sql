-- Purpose: the queues that a worker takes, with their ids.
-- Parameters: project, names, patterns of LIKE (null: none) and what these leave out (excluded), size (at most so many
--   by patterns).
-- Index: leasequeue_queue_name.
-- Pages: 20 + 0.3 a row
SELECT q.id, q.name, q.holds_tasks FROM unnest(%(names)s::text[]) AS n (name) CROSS JOIN LATERAL (
    SELECT * FROM leasequeue_queue q WHERE q.project = %(project)s AND q.name = n.name OFFSET 0) q
WHERE q.type = 'queue'
UNION ALL (
    SELECT q.id, q.name, q.holds_tasks FROM leasequeue_queue q
    WHERE q.project = %(project)s AND q.type = 'queue' AND %(patterns)s::text[] IS NOT NULL
        AND q.name LIKE ANY (%(patterns)s::text[]) AND q.name NOT LIKE ALL (%(excluded)s::text[])
        AND q.name <> ALL (%(names)s::text[])
    ORDER BY q.name LIMIT %(size)s::int)
