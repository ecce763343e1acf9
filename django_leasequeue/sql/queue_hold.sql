-- Purpose: keep a queue from being deleted until the transaction ends; waits for one that is deleting it.
-- Parameters: project, name.
-- Index: leasequeue_queue_name.
-- Returns: the queue's id; nothing if there is none.
SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(name)s FOR KEY SHARE
