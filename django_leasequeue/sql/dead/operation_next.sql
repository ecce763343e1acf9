-- Purpose: the pending and running bulk operations, oldest first.
-- Parameters: size.
-- Index: leasequeue_operation_active.
-- Pages: 30
SELECT o.id FROM leasequeue_bulkoperation o WHERE o.state IN ('pending', 'running') ORDER BY o.id LIMIT %(size)s::int
