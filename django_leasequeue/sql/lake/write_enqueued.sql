-- Purpose: the number of jobs that a write has added.
-- Parameters: write_id.
-- Index: leasequeue_lakewrite_once.
-- Pages: 90
-- Returns: their number over all its batches; null if it was never committed.
SELECT sum(enqueued)::bigint FROM leasequeue_lakewrite WHERE write_id = %(write_id)s::text
