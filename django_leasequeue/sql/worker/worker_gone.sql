-- Purpose: remove the row of a worker that has stopped.
-- Parameters: node.
-- Index: the unique one on node.
-- Pages: 30
DELETE FROM leasequeue_worker WHERE node = %(node)s::text RETURNING node
