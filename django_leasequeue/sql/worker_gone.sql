-- Purpose: a worker has stopped: remove its row.
-- Parameters: node.
-- Index: the unique one on node.
DELETE FROM leasequeue_worker WHERE node = %(node)s::text RETURNING node
