-- Purpose: note how many jobs a write added.
-- Parameters: write_id, batch, enqueued.
-- Index: leasequeue_lakewrite_once.
-- Pages: 40
UPDATE leasequeue_lakewrite SET enqueued = %(enqueued)s::bigint
WHERE write_id = %(write_id)s::text AND batch = %(batch)s::bigint
