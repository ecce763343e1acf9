-- Purpose: the record numbers of the write with this idempotency key.
-- Parameters: queue (id), key.
-- Index: leasequeue_idempotency_key.
-- Pages: 30
-- Returns: seqs; nothing if the key was removed meanwhile.
SELECT seqs FROM leasequeue_idempotencykey WHERE queue_id = %(queue)s::bigint AND key = %(key)s::text
