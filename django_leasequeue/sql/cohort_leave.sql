-- Purpose: waiters leave without their jobs.
-- Parameters: ids.
-- Index: leasequeue_claimwaiter_pkey, leasequeue_claim_pkey.
-- Returns: node, claim and jobs of those that were dealt to: to be released.
WITH w AS (
    DELETE FROM leasequeue_claimwaiter WHERE id = ANY (%(ids)s::bigint[]) RETURNING claim
)
SELECT c.node, c.id, c.seqs FROM w JOIN leasequeue_claim c ON c.id = w.claim
