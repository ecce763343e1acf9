-- Purpose: note the state of a moved queue's source: the transactions that may still add jobs there, or that it
--   is drained.
-- Parameters: project, name, moved_at (the move that was looked at: a later one stays as it is), writers, drained, now.
-- Index: leasequeue_route_name.
-- Pages: 10
UPDATE leasequeue_route SET writers = %(writers)s::text[], drained_at = CASE WHEN %(drained)s::bool THEN {now()} END
WHERE project = %(project)s AND name = %(name)s AND drained_at IS NULL AND moved_at = %(moved_at)s::timestamptz
RETURNING name
