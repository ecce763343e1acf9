-- Purpose: how many jobs of a queue may be leased now (the caller holds slots_lock.sql). What is leased is what stands
--   in claims: a slot is neither lost nor given twice.
-- Parameters: queue (id).
-- Index: leasequeue_queue_pkey, leasequeue_claim_deadline: the live claims of the queue, no more than its concurrency.
-- Pages: 20 + 3 a row
SELECT q.concurrency - (SELECT COALESCE(sum(cardinality(c.seqs)), 0) FROM leasequeue_claim c WHERE c.queue_id = q.id)
FROM leasequeue_queue q WHERE q.id = %(queue)s::bigint AND q.concurrency > 0
