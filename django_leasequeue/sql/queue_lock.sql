-- Purpose: keep everybody from a queue who would write to it, until the transaction ends. They see it at once, in the row's xmax.
-- Parameters: project, name.
-- Index: leasequeue_queue_name.
-- Returns: the queue's id; nothing if there is none.
SELECT id FROM leasequeue_queue WHERE project = %(project)s AND name = %(name)s FOR UPDATE
