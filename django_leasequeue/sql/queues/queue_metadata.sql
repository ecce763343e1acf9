-- Purpose: replace the metadata of a queue.
-- Parameters: project, name, metadata (json object), now.
-- Index: leasequeue_queue_name.
-- Pages: 40
UPDATE leasequeue_queue SET metadata = %(metadata)s::jsonb, updated_at = {now()}
WHERE project = %(project)s AND name = %(name)s
RETURNING id
