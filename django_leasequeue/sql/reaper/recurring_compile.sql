-- Purpose: note the job that a recurring task enqueues.
-- Parameters: id, template (json text).
-- Index: leasequeue_recurringtask_pkey.
-- Pages: 30
UPDATE leasequeue_recurringtask SET template = %(template)s::jsonb
WHERE id = %(id)s::bigint AND template IS DISTINCT FROM %(template)s::jsonb
RETURNING id
