-- Purpose: whether a write was committed.
-- Parameters: write_id, batch.
-- Index: leasequeue_lakewrite_once.
-- Pages: 30
SELECT EXISTS (
    SELECT FROM leasequeue_lakewrite WHERE write_id = %(write_id)s::text AND batch = %(batch)s::bigint)
