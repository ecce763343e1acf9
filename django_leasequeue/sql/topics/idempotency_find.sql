-- Purpose: the record numbers of the write with this idempotency key.
-- Parameters: queue (id), key.
-- Index: leasequeue_idempotency_key.
-- Pages: 30
SELECT seqs FROM leasequeue_idempotencykey WHERE queue_id = %(queue)s::bigint AND key = %(key)s::text
