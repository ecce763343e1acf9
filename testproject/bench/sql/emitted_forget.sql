-- Purpose: the events that the benchmark has emitted.
-- Parameters: project.
DELETE FROM leasequeue_emittedevent WHERE project = %(project)s
