-- Purpose: store the record numbers of a keyed write, in its transaction.
-- Parameters: queue (id), key, seqs.
-- Index: leasequeue_idempotency_key.
-- Pages: 50
UPDATE leasequeue_idempotencykey SET seqs = %(seqs)s::bigint[]
WHERE queue_id = %(queue)s::bigint AND key = %(key)s::text RETURNING id
