-- Purpose: which of these topics exist.
-- Parameters: project, names.
-- Index: leasequeue_queue_name.
-- Pages: 30
SELECT name FROM leasequeue_queue WHERE project = %(project)s AND name = ANY (%(names)s::text[])
