-- Purpose: take the name of a write; later callers wait for this transaction and find it taken.
-- Parameters: write_id, batch, staged.
-- Index: leasequeue_lakewrite_once.
-- Pages: 40
INSERT INTO leasequeue_lakewrite (write_id, batch, committed_at, staged, enqueued)
VALUES (%(write_id)s::text, %(batch)s::bigint, clock_timestamp(), %(staged)s::bigint, 0)
ON CONFLICT (write_id, batch) DO NOTHING
RETURNING id
