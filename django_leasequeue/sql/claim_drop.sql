-- Purpose: remove a claim whose jobs were all given back: until its deadline it would be looked through for held ones. One
--   whose jobs are done in part stays for the sweep, which remembers their numbers.
-- Parameters: queue (id), claim, released (how many were given back).
-- Index: leasequeue_claim_pkey.
DELETE FROM leasequeue_claim
WHERE id = %(claim)s::bigint AND queue_id + 0 = %(queue)s::bigint AND cardinality(seqs) = %(released)s::int
RETURNING id
